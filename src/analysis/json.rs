//! JSON, written as it comes.

use std::fmt::Display;
use std::io::{self, Write};

pub struct Json<W> {
    output: W,
    /// Whether something stands before what comes next, in the same array or object.
    comma: bool,
}

impl<W: Write> Json<W> {
    pub fn new(output: W) -> Json<W> {
        Json { output, comma: false }
    }

    /// Ends the text with a line end.
    pub fn end(mut self) -> io::Result<()> {
        self.output.write_all(b"\n")?;
        self.output.flush()
    }

    pub fn object(&mut self, body: impl FnOnce(&mut Json<W>) -> io::Result<()>) -> io::Result<()> {
        self.nest(b"{", body, b"}")
    }

    pub fn array(&mut self, body: impl FnOnce(&mut Json<W>) -> io::Result<()>) -> io::Result<()> {
        self.nest(b"[", body, b"]")
    }

    /// An array of what `write` writes of each item.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Json<W>, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.array(|json| items.into_iter().try_for_each(|item| write(json, item)))
    }

    /// The key of what is written next.
    pub fn key(&mut self, key: &str) -> io::Result<&mut Json<W>> {
        self.text(key)?;
        self.output.write_all(b":")?;
        self.comma = false;
        Ok(self)
    }

    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        self.output.write_all(b"\"")?;
        let mut written = 0;
        for (at, byte) in text.bytes().enumerate() {
            let escaped: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                0..0x20 => &format!("\\u{byte:04x}").into_bytes(),
                _ => continue,
            };
            self.output.write_all(&text.as_bytes()[written..at])?;
            self.output.write_all(escaped)?;
            written = at + 1;
        }
        self.output.write_all(&text.as_bytes()[written..])?;
        self.output.write_all(b"\"")
    }

    pub fn number(&mut self, number: impl Display) -> io::Result<()> {
        self.separate()?;
        write!(self.output, "{number}")
    }

    pub fn boolean(&mut self, yes: bool) -> io::Result<()> {
        self.number(yes)
    }

    pub fn null(&mut self) -> io::Result<()> {
        self.number("null")
    }

    /// What comes next begins on a line of its own: for long lists, so that people can read them.
    pub fn line(&mut self) -> io::Result<()> {
        self.separate()?;
        self.comma = false;
        self.output.write_all(b"\n")
    }

    fn nest(
        &mut self,
        open: &[u8],
        body: impl FnOnce(&mut Json<W>) -> io::Result<()>,
        close: &[u8],
    ) -> io::Result<()> {
        self.separate()?;
        self.output.write_all(open)?;
        self.comma = false;
        body(self)?;
        self.output.write_all(close)?;
        self.comma = true;
        Ok(())
    }

    fn separate(&mut self) -> io::Result<()> {
        if self.comma {
            self.output.write_all(b",")?;
        }
        self.comma = true;
        Ok(())
    }
}

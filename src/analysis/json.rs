//! JSON, written as it comes.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use crate::names::acts;

/// JSON that another program has written, with what a terminal would obey as JSON itself says it. Between
/// lines there may be line ends, and nothing else of that kind is in JSON outside of texts.
pub fn harmless(json: &str) -> Cow<'_, str> {
    let spoils = |letter| letter != '\n' && acts(letter);
    if !json.contains(spoils) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if spoils(letter) {
            text += &format!("\\u{:04x}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
    text.into()
}

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
        let mut rest = text;
        while let Some(at) = rest.find(|letter| matches!(letter, '"' | '\\') || acts(letter)) {
            let (before, after) = rest.split_at(at);
            let mut letters = after.chars();
            let letter = letters.next().unwrap_or_default();
            self.output.write_all(before.as_bytes())?;
            match letter {
                '"' => self.output.write_all(b"\\\"")?,
                '\\' => self.output.write_all(b"\\\\")?,
                '\n' => self.output.write_all(b"\\n")?,
                letter => write!(self.output, "\\u{:04x}", u32::from(letter))?,
            }
            rest = letters.as_str();
        }
        self.output.write_all(rest.as_bytes())?;
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

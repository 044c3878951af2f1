//! Writes JSON to a stream.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use crate::plain::is_steering;

/// Escapes the letters of another program's JSON that control a terminal. Line ends stay: outside
/// texts, JSON has no other such letter.
pub fn escaped(json: &str) -> Cow<'_, str> {
    let steers = |letter| letter != '\n' && is_steering(letter);
    if !json.contains(steers) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if steers(letter) {
            text += &format!("\\u{:04x}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
    text.into()
}

pub struct Json<W> {
    output: W,
    /// Whether an item precedes the next one in the same array or object.
    comma: bool,
    /// Whether a key precedes the next item.
    keyed: bool,
    /// Indentation depth of items on separate lines, or `None` to write no lines.
    depth: Option<usize>,
}

impl<W: Write> Json<W> {
    pub fn new(output: W) -> Json<W> {
        Json { output, comma: false, keyed: true, depth: None }
    }

    /// Writes each item on a separate line.
    pub fn lines(output: W) -> Json<W> {
        Json { depth: Some(0), ..Json::new(output) }
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

    /// Writes an array, with each item written by `write`.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Json<W>, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.array(|json| items.into_iter().try_for_each(|item| write(json, item)))
    }

    /// Writes the key of the next value.
    pub fn key(&mut self, key: &str) -> io::Result<&mut Json<W>> {
        self.text(key)?;
        self.output.write_all(if self.depth.is_some() { b": " } else { b":" })?;
        self.keyed = true;
        Ok(self)
    }

    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        self.output.write_all(b"\"")?;
        let mut rest = text;
        while let Some(at) = rest.find(|letter| matches!(letter, '"' | '\\') || is_steering(letter))
        {
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

    /// Begins a line for the next item of a long list, for readability.
    pub fn line(&mut self) -> io::Result<()> {
        self.separate()?;
        self.keyed = true;
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
        self.depth = self.depth.map(|depth| depth + 1);
        body(self)?;
        self.depth = self.depth.map(|depth| depth - 1);
        if self.comma {
            self.break_line()?;
        }
        self.output.write_all(close)?;
        self.comma = true;
        Ok(())
    }

    fn separate(&mut self) -> io::Result<()> {
        let is_behind_key = std::mem::take(&mut self.keyed);
        if !is_behind_key {
            if self.comma {
                self.output.write_all(b",")?;
            }
            self.break_line()?;
        }
        self.comma = true;
        Ok(())
    }

    fn break_line(&mut self) -> io::Result<()> {
        match self.depth {
            Some(depth) => write!(self.output, "\n{:1$}", "", 2 * depth),
            None => Ok(()),
        }
    }
}

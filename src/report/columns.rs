//! Columns of numbers in the encoding that the page reads (`page/common/data.js`). Numbers follow
//! one another in one byte sequence, seven bits per byte, lowest first; the eighth bit marks that
//! more bytes follow. The result is deflated, so only differences, which a compressor cannot find,
//! are taken here.

use std::io::{self, Write};

use cachealloc_text::Json;
use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Encoding of a column, under its name in the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Unsigned,
    /// Differences between successive numbers, which never decrease.
    Delta,
    /// Signed numbers in zigzag order: 0, -1, 1, -2, ...
    Signed,
    /// UTF-8.
    Text,
}

#[derive(Default)]
pub(crate) struct Columns {
    bytes: Vec<u8>,
    index: Vec<Column>,
}

struct Column {
    name: String,
    kind: Kind,
    count: usize,
    bytes: usize,
}

impl Columns {
    pub(crate) fn unsigned(&mut self, name: &str, numbers: impl IntoIterator<Item = u64>) {
        self.column(name, Kind::Unsigned, numbers);
    }

    /// Adds a column of numbers that never decrease.
    pub(crate) fn delta(&mut self, name: &str, numbers: impl IntoIterator<Item = u64>) {
        let mut before = 0;
        let distances = numbers.into_iter().map(|number| {
            let distance = number - before;
            before = number;
            distance
        });
        self.column(name, Kind::Delta, distances);
    }

    pub(crate) fn signed(&mut self, name: &str, numbers: impl IntoIterator<Item = i64>) {
        let turned =
            numbers.into_iter().map(|number| ((number << 1) ^ (number >> 63)).cast_unsigned());
        self.column(name, Kind::Signed, turned);
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.index.push(Column {
            name: name.to_string(),
            kind: Kind::Text,
            count: 1,
            bytes: text.len(),
        });
    }

    fn column(&mut self, name: &str, kind: Kind, numbers: impl IntoIterator<Item = u64>) {
        let begin = self.bytes.len();
        let mut count = 0;
        for number in numbers {
            push_varint(&mut self.bytes, number);
            count += 1;
        }
        let bytes = self.bytes.len() - begin;
        self.index.push(Column { name: name.to_string(), kind, count, bytes });
    }

    /// Writes the position of each column, for the head of the page.
    pub(crate) fn write_index<W: Write>(&self, json: &mut Json<W>) -> io::Result<()> {
        json.list(&self.index, |json, column| {
            let kind = match column.kind {
                Kind::Unsigned => "uint",
                Kind::Delta => "delta",
                Kind::Signed => "int",
                Kind::Text => "text",
            };
            json.object(|json| {
                json.key("name")?.text(&column.name)?;
                json.key("kind")?.text(kind)?;
                json.key("count")?.number(column.count)?;
                json.key("bytes")?.number(column.bytes)
            })
        })
    }

    pub(crate) fn deflated(&self) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(DEFLATE_LEVEL));
        let done = encoder.write_all(&self.bytes).and_then(|()| encoder.finish());
        done.expect("memory takes all bytes")
    }
}

/// Returns the first number alone if all are equal: the page takes it for all.
pub(crate) fn once_if_equal(mut numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let Some(first) = numbers.next() else { return Vec::new() };
    let mut alike = 1;
    while let Some(number) = numbers.next() {
        if number != first {
            let mut all = vec![first; alike];
            all.push(number);
            all.extend(numbers);
            return all;
        }
        alike += 1;
    }
    vec![first]
}

/// Compression level. Higher levels shrink the file by a few percent and take several times as
/// long.
const DEFLATE_LEVEL: u32 = 6;

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Encodes in the alphabet of RFC 4648, which `atob` reads.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= three.len() {
                let letter = bits >> (18 - 6 * place) & 63;
                text.push(char::from(LETTERS[letter as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

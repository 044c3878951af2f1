//! Records in pieces of memory: a header of one word (the kind, a number, the count of the words
//! that follow), then the words. A header of 0 ends a piece. Texts are bytes, padded with zeros to
//! whole words.

use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use super::layout::CHUNK_BYTES;
use crate::frames::Frame;

/// Words of a piece. A chunk has several pieces, so that concurrent writers each have one.
pub const PIECE_WORDS: usize = 1024;
pub const PIECES: usize = CHUNK_BYTES / (PIECE_WORDS * 8);
const _: () = assert!(PIECES * PIECE_WORDS * 8 == CHUNK_BYTES);

/// The words of a stack; the number is its id.
pub const STACK: u8 = 1;
/// A `Module`. A later record of the same module replaces an earlier one.
pub const MODULE: u8 = 2;
/// A `PythonText`.
pub const PYTHON: u8 = 3;
/// The key and value of a setting, as texts.
pub const SETTING: u8 = 4;

/// Writes a record at the start of `room`, which must have one word more than the record needs: the
/// next header.
pub fn put(room: &mut [u64], kind: u8, number: u32, words: &[u64]) {
    room[1..=words.len()].copy_from_slice(words);
    // A record with a header is complete, at whatever instruction the process is killed.
    compiler_fence(Ordering::SeqCst);
    room[0] = u64::from(kind) << 56 | (words.len() as u64) << 32 | u64::from(number);
    compiler_fence(Ordering::SeqCst);
}

/// Returns the records of a piece: kind, number and words.
pub fn records(piece: &[u64]) -> impl Iterator<Item = (u8, u32, &[u64])> {
    let mut rest = piece;
    std::iter::from_fn(move || {
        let (&header, behind) = rest.split_first()?;
        let words = (header >> 32) as usize & 0xff_ffff;
        if header == 0 || words > behind.len() {
            return None;
        }
        let (record, after) = behind.split_at(words);
        rest = after;
        Some(((header >> 56) as u8, header as u32, record))
    })
}

/// Appends two texts as words: their lengths, then their bytes.
pub fn put_texts(words: &mut Vec<u64>, first: &str, second: &str) {
    words.push((first.len() as u64) << 32 | second.len() as u64);
    let mut bytes = [first.as_bytes(), second.as_bytes()].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    words.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
}

/// Reads the texts that `put_texts` has written.
pub fn texts(words: &[u64]) -> Option<(String, String)> {
    let (&lengths, words) = words.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let (first, second) = ((lengths >> 32) as usize, lengths as u32 as usize);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(bytes.get(..first)?), text(bytes.get(first..first.checked_add(second)?)?)))
}

/// A module (main program or library) while it was loaded at one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    pub base: u64,
    pub range: Range<u64>,
    /// First and last epoch, both included.
    pub epochs: (u32, u32),
    pub path: String,
    /// Build id in hexadecimal digits; empty if the module has none.
    pub build_id: String,
}

impl Module {
    pub fn to_words(&self) -> Vec<u64> {
        let epochs = u64::from(self.epochs.0) << 32 | u64::from(self.epochs.1);
        let mut words = vec![self.base, self.range.start, self.range.end, epochs];
        put_texts(&mut words, &self.path, &self.build_id);
        words
    }

    pub fn from_words(words: &[u64]) -> Option<Module> {
        let (&[base, start, end, epochs], rest) = words.split_first_chunk()?;
        let (path, build_id) = texts(rest)?;
        let epochs = ((epochs >> 32) as u32, epochs as u32);
        Some(Module { base, range: start..end, epochs, path, build_id })
    }

    /// Returns whether it is the same module, ignoring its last epoch.
    pub fn is(&self, other: &Module) -> bool {
        let identity = |module: &Module| (module.base, module.range.clone(), module.epochs.0);
        identity(self) == identity(other)
            && self.path == other.path
            && self.build_id == other.build_id
    }
}

/// A Python frame, and the word that stands for it in stacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PythonText {
    pub word: u64,
    pub frame: Frame,
    pub boundary: bool,
}

impl PythonText {
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![self.word, self.frame.line, u64::from(self.boundary)];
        put_texts(&mut words, &self.frame.name, &self.frame.filename);
        words
    }

    pub fn from_words(words: &[u64]) -> Option<PythonText> {
        let (&[word, line, boundary], rest) = words.split_first_chunk()?;
        let (name, filename) = texts(rest)?;
        let frame = Frame::from_bytes(name.as_bytes(), filename.as_bytes(), line);
        Some(PythonText { word, frame, boundary: boundary == 1 })
    }
}

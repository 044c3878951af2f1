//! Entries in a fraction of their size, for a snapshot: each as its difference from the previous
//! one, in some 12 bytes instead of 40. A copy of a ring would otherwise double its memory, at a
//! moment when the host may have none left.

use std::slice;

use crate::entry::{Action, Entry, StackId};

/// A list of entries that grows at its end and is read from its beginning.
#[derive(Clone, Default)]
pub struct PackedEntries {
    chunks: Vec<Vec<u8>>,
    len: usize,
    last: Entry,
}

/// A chunk is never moved, so the list takes no more memory while it grows than afterwards.
const CHUNK_BYTES: usize = 1 << 16;
/// A byte of flags, four numbers of up to 64 bits, one of 32, one of 16, and a byte.
const ENTRY_BYTES_MAX: usize = 1 + 4 * 10 + 5 + 3 + 1;

/// Bits of the flags that hold the action.
const ACTION: u8 = 0xf;
const SAME_BYTES: u8 = 0x10;
const SAME_STREAM: u8 = 0x20;
const SAME_STACK: u8 = 0x40;
/// Set if the entry is in the same range, which was not entered again.
const SAME_RANGE: u8 = 0x80;

/// Most addresses are multiples of 512, so these bits are packed last.
const GRAIN_BITS: u32 = 9;

impl PackedEntries {
    pub fn push(&mut self, entry: &Entry) {
        let last = self.last;
        let mut packed = Packed { bytes: [0; ENTRY_BYTES_MAX], len: 1 };
        let same = [
            (entry.bytes == last.bytes, SAME_BYTES),
            (entry.stream == last.stream, SAME_STREAM),
            (entry.stack == last.stack, SAME_STACK),
            (entry.range == last.range && entry.entered == 0, SAME_RANGE),
        ];
        let same = same.iter().filter(|(is, _)| *is).fold(0, |flags, (_, flag)| flags | flag);
        packed.bytes[0] = entry.action as u8 | same;
        packed.number(entry.time_ns.wrapping_sub(last.time_ns));
        packed.number((entry.address ^ last.address).rotate_right(GRAIN_BITS));
        if same & SAME_BYTES == 0 {
            packed.number(entry.bytes);
        }
        if same & SAME_STREAM == 0 {
            packed.number(entry.stream);
        }
        if same & SAME_STACK == 0 {
            packed.number(entry.stack.0.into());
        }
        if same & SAME_RANGE == 0 {
            packed.number(entry.range.into());
            packed.byte(entry.entered);
        }
        let packed = &packed.bytes[..packed.len];
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() + packed.len() <= CHUNK_BYTES => {
                chunk.extend_from_slice(packed);
            }
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_BYTES);
                chunk.extend_from_slice(packed);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
        self.last = *entry;
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry> + Clone + use<'_> {
        Unpacked { chunks: self.chunks.iter(), left: &[], last: Entry::default() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    pub fn clear(&mut self) {
        *self = PackedEntries::default();
    }
}

impl<'a> FromIterator<&'a Entry> for PackedEntries {
    fn from_iter<I: IntoIterator<Item = &'a Entry>>(entries: I) -> PackedEntries {
        let mut packed = PackedEntries::default();
        entries.into_iter().for_each(|entry| packed.push(entry));
        packed
    }
}

struct Packed {
    bytes: [u8; ENTRY_BYTES_MAX],
    len: usize,
}

impl Packed {
    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Appends seven bits a byte, the lowest first. The highest bit tells that more follow.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

#[derive(Clone)]
struct Unpacked<'a> {
    chunks: slice::Iter<'a, Vec<u8>>,
    left: &'a [u8],
    last: Entry,
}

impl Unpacked<'_> {
    fn byte(&mut self) -> u8 {
        self.left.split_off_first().copied().unwrap_or_default()
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 63 {
                return number;
            }
        }
    }
}

impl Iterator for Unpacked<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.left.is_empty() {
            self.left = self.chunks.next()?;
        }
        let flags = self.byte();
        let mut entry = self.last;
        entry.action = Action::ALL.get(usize::from(flags & ACTION)).copied().unwrap_or_default();
        entry.time_ns = entry.time_ns.wrapping_add(self.number());
        entry.address ^= self.number().rotate_left(GRAIN_BITS);
        entry.entered = 0;
        if flags & SAME_BYTES == 0 {
            entry.bytes = self.number();
        }
        if flags & SAME_STREAM == 0 {
            entry.stream = self.number();
        }
        if flags & SAME_STACK == 0 {
            entry.stack = StackId(self.number() as u32);
        }
        if flags & SAME_RANGE == 0 {
            entry.range = self.number() as u16;
            entry.entered = self.byte();
        }
        self.last = entry;
        Some(entry)
    }
}

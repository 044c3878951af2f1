//! Copying the interpreter's own texts.

use crate::host::Interpreter;
use crate::memory::{Memory, is_plausible};

/// Characters of a name, and bytes of a line table, that are kept: beyond this something is
/// strange, and cutting is better than copying it.
const CHARACTERS_COUNT_MAX: u64 = 1 << 14;
const LINE_TABLE_BYTES_MAX: u64 = 1 << 22;

// The bits of a text's state from its kind on; the same in all versions so far.
const KIND_MASK: u32 = 0b111;
const COMPACT: u32 = 1 << 3;
const ASCII: u32 = 1 << 4;

/// The characters of a `str`, in place.
pub(crate) struct Characters {
    pub address: u64,
    pub count: u64,
    pub bytes_each: u64,
}

/// Whether an object is a `str` or of a class made from it, as file names given to `compile` may be.
#[inline(always)]
pub(crate) fn is_text<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    object: u64,
) -> Option<bool> {
    /// `Py_TPFLAGS_UNICODE_SUBCLASS`.
    const OF_TEXT: u64 = 1 << 28;
    if !is_plausible(object) {
        return None;
    }
    let objects = &interpreter.layout.objects;
    let class = memory.word(object + objects.class)?;
    if class == interpreter.text_type {
        return Some(true);
    }
    Some(is_plausible(class) && memory.word(class + objects.class_flags)? & OF_TEXT != 0)
}

/// Where a `str` has its characters; none if it is no `str`.
#[inline(always)]
pub(crate) fn characters<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    text: u64,
) -> Option<Characters> {
    let layout = &interpreter.layout.text;
    if !is_text(interpreter, memory, text)? {
        return None;
    }
    let state = memory.half(text + layout.state)? >> layout.kind_shift;
    let address = match (state & COMPACT != 0, state & ASCII != 0) {
        (true, true) => text + layout.ascii_data,
        (true, false) => text + layout.compact_data,
        // The characters of a text that was made in two steps lie elsewhere.
        (false, _) => memory.word(text + layout.compact_data).filter(|address| *address != 0)?,
    };
    let count = memory.word(text + layout.length)?.min(CHARACTERS_COUNT_MAX);
    let bytes_each = u64::from(state & KIND_MASK);
    matches!(bytes_each, 1 | 2 | 4).then_some(Characters { address, count, bytes_each })
}

/// A `str` as UTF-8; `?` if it cannot be read.
pub(crate) fn copy_text<M: Memory>(interpreter: &Interpreter, memory: &M, text: u64) -> String {
    let copied = characters(interpreter, memory, text).and_then(|characters| {
        (0..characters.count).map(|index| character(memory, &characters, index)).collect()
    });
    copied.unwrap_or_else(|| "?".to_owned())
}

/// The contents of a `bytes`; empty if it cannot be read.
pub(crate) fn copy_bytes<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    bytes: u64,
) -> Box<[u8]> {
    let copied = || {
        let objects = &interpreter.layout.objects;
        if !is_plausible(bytes) || memory.word(bytes + objects.class)? != interpreter.bytes_type {
            return None;
        }
        let count = memory.word(bytes + objects.bytes_length)?.min(LINE_TABLE_BYTES_MAX);
        (0..count).map(|index| memory.byte(bytes + objects.bytes_data + index)).collect()
    };
    copied().unwrap_or_default()
}

/// Python's texts may hold halves of surrogate pairs (undecodable file names), UTF-8 may not.
fn character<M: Memory>(memory: &M, characters: &Characters, index: u64) -> Option<char> {
    let address = characters.address + index * characters.bytes_each;
    let number = match characters.bytes_each {
        1 => u32::from(memory.byte(address)?),
        2 => u32::from(memory.read(address).map(u16::from_le_bytes)?),
        _ => memory.half(address)?,
    };
    Some(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
}

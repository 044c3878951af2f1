//! Copies the interpreter's texts.

use crate::host::Interpreter;
use crate::memory::{Memory, is_plausible};

/// Maximum number of characters of a name, and of bytes of a line table, that are kept. Longer ones
/// are unusual, and truncating them is better than copying them.
const CHARACTERS_COUNT_MAX: u64 = 1 << 14;
const LINE_TABLE_BYTES_MAX: u64 = 1 << 22;

// The bits of a text's state from its kind on; the same in all versions so far.
const KIND_MASK: u32 = 0b111;
const COMPACT: u32 = 1 << 3;
const ASCII: u32 = 1 << 4;

/// Characters of a `str`, in place.
pub(crate) struct Characters {
    pub address: u64,
    pub count: u64,
    pub bytes_each: u64,
}

/// Returns whether an object is a `str` or an instance of a subclass, such as a file name given to
/// `compile`.
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

/// Returns the characters of a `str`, or `None` if it is not one.
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
        // The characters of a text that was created in two steps are elsewhere.
        (false, _) => memory.word(text + layout.compact_data).filter(|address| *address != 0)?,
    };
    let count = memory.word(text + layout.length)?.min(CHARACTERS_COUNT_MAX);
    let bytes_each = u64::from(state & KIND_MASK);
    matches!(bytes_each, 1 | 2 | 4).then_some(Characters { address, count, bytes_each })
}

/// Copies a `str` as UTF-8. Returns `?` if it cannot be read.
pub(crate) fn copy_text<M: Memory>(interpreter: &Interpreter, memory: &M, text: u64) -> String {
    let copied = characters(interpreter, memory, text).and_then(|characters| {
        (0..characters.count).map(|index| character(memory, &characters, index)).collect()
    });
    copied.unwrap_or_else(|| "?".to_owned())
}

/// Copies the contents of a `bytes`. Empty if it cannot be read.
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

/// Python's texts may contain unpaired surrogates (undecodable file names); UTF-8 may not.
fn character<M: Memory>(memory: &M, characters: &Characters, index: u64) -> Option<char> {
    let address = characters.address + index * characters.bytes_each;
    let number = match characters.bytes_each {
        1 => u32::from(memory.byte(address)?),
        2 => u32::from(memory.read(address).map(u16::from_le_bytes)?),
        _ => memory.half(address)?,
    };
    Some(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
}

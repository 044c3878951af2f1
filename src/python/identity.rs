//! Distinguishes a code object from all others, including those that were at its address before.
//!
//! Code objects die (`exec` in a loop, generated models), and the allocator reuses their memory for
//! the next one of the same size. The new one often has the same address for its name, and the same
//! first line. From 3.12 on each code object has a version number that is unique in its
//! interpreter, and the numbers of the process's main interpreter outlive all code. In all other
//! cases only the contents distinguish code objects: the names, character by character, and the
//! line table, byte by byte.
//!
//! The result is a hash of 64 bits, never 0. Among a million code objects, a collision has a
//! probability of 3 in 10^8.

use crate::host::Interpreter;
use crate::memory::Memory;
use crate::text::characters;

const ODD_1: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_2: u64 = 0xd6e8_feb8_6659_fd93;

/// Returns the fingerprint of a code object of the main or another interpreter, or `None` if one of
/// its texts is not a text.
#[inline(always)]
pub(crate) fn fingerprint<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    code: u64,
    is_main: bool,
) -> Option<u64> {
    let layout = &interpreter.layout.code;
    let first_line = memory.half(code + layout.first_line)?;
    let version = match layout.version {
        Some(version) => memory.half(code + version)?,
        None => 0,
    };
    let start = mix(code ^ ODD_2, (u64::from(version) << 32 | u64::from(first_line)) ^ ODD_1);
    // The version is 0 if the interpreter ran out of numbers, or has none.
    let all = match version != 0 && is_main {
        true => start,
        false => contents(interpreter, memory, code, start)?,
    };
    Some(all.max(1))
}

#[inline(always)]
fn contents<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    code: u64,
    start: u64,
) -> Option<u64> {
    let layout = &interpreter.layout.code;
    let mut hash = start;
    for field in [layout.name, layout.filename] {
        let text = memory.word(code + field)?;
        let text = characters(interpreter, memory, text)?;
        hash =
            mix(hash ^ text.bytes_each, bytes(memory, text.address, text.count * text.bytes_each)?);
    }
    let lines = memory.object(code + layout.line_table)?;
    // The whole table: code objects that differ in the position of an empty line have tables of
    // equal size and ends.
    let objects = &interpreter.layout.objects;
    let lines_bytes = memory.word(lines + objects.bytes_length)?;
    Some(mix(hash ^ lines_bytes, bytes(memory, lines + objects.bytes_data, lines_bytes)? ^ ODD_1))
}

/// Hashes the bytes at an address. The reads overlap at the end and do not depend on each other.
#[inline(always)]
fn bytes<M: Memory>(memory: &M, address: u64, count: u64) -> Option<u64> {
    let mut hash = count.wrapping_mul(ODD_2);
    if count < 8 {
        for index in 0..count {
            hash = hash.rotate_left(8) ^ u64::from(memory.byte(address + index)?);
        }
        return Some(mix(hash, ODD_1));
    }
    let last = address + count - 8;
    let mut at = address;
    while at + 8 < last {
        let pair = (memory.word(at)?, memory.word(at + 8)?);
        hash = hash.rotate_left(23) ^ mix(pair.0 ^ ODD_1, pair.1 ^ ODD_2);
        at += 16;
    }
    let pair = (memory.word(at.min(last))?, memory.word(last)?);
    Some(hash.rotate_left(23) ^ mix(pair.0 ^ ODD_1, pair.1 ^ ODD_2))
}

/// Combines both halves of the product: every bit of either factor affects every bit of the result.
#[inline(always)]
fn mix(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Checked;

    #[test]
    fn each_byte_and_the_length_count() {
        let memory = Checked::new().expect("a pipe");
        let hash = |text: &[u8]| {
            bytes(&memory, text.as_ptr() as u64, text.len() as u64).expect("readable")
        };
        let mut seen = std::collections::HashSet::new();
        for length in 0..70 {
            let text = vec![b'a'; length];
            assert!(seen.insert(hash(&text)), "length {length}");
            for index in 0..length {
                let mut changed = text.clone();
                changed[index] = b'b';
                assert!(seen.insert(hash(&changed)), "byte {index} of {length}");
            }
        }
    }
}

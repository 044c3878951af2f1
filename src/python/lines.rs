//! Translates an instruction's offset to a line, using the tables of code objects.

use crate::codes::Code;
use crate::layout::LineFormat;

/// Returns the line of the instruction at an offset. Returns the first line of the code if the
/// table has no line for it (the interpreter's own instructions) or the frame has not started.
pub(crate) fn line(code: &Code, offset_bytes: i32) -> u64 {
    let first_line = i64::from(code.first_line);
    let offset = i64::from(offset_bytes);
    let found = match code.line_format {
        _ if offset < 0 => None,
        LineFormat::Pairs => Some(from_pairs(&code.line_table, first_line, offset)),
        LineFormat::Ranges => from_ranges(&code.line_table, first_line, offset),
        LineFormat::Locations => from_locations(&code.line_table, first_line, offset),
    };
    found.and_then(|line| u64::try_from(line).ok()).unwrap_or(u64::from(code.first_line))
}

/// 3.9: each pair is the step of the address and the step of the line.
fn from_pairs(table: &[u8], first_line: i64, offset: i64) -> i64 {
    let mut address = 0;
    let mut line = first_line;
    for pair in table.chunks_exact(2) {
        address += i64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

/// 3.10: each pair is the size of a range in bytes, and the difference of its line from the
/// previous one.
fn from_ranges(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let mut end = 0;
    let mut line = first_line;
    for pair in table.chunks_exact(2) {
        end += i64::from(pair[0]);
        let step = pair[1] as i8;
        if step != NO_LINE {
            line += i64::from(step);
        }
        if offset < end {
            return (step != NO_LINE).then_some(line);
        }
    }
    None
}

/// 3.11 on: an entry starts with a byte that has its highest bit set, the kind in the next four,
/// and the number of instructions, less one, in the last three.
fn from_locations(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    const UNIT_BYTES: i64 = 2;
    let mut rest = table;
    let mut end = 0;
    let mut line = first_line;
    while let Some((head, behind)) = rest.split_first() {
        let kind = head >> 3 & 15;
        end += (i64::from(head & 7) + 1) * UNIT_BYTES;
        line += match kind {
            13 | 14 => signed(behind),
            10..=12 => i64::from(kind - 10),
            _ => 0,
        };
        if offset < end {
            const NO_LOCATION: u8 = 15;
            return (kind != NO_LOCATION).then_some(line);
        }
        let next = behind.iter().position(|byte| byte & 0x80 != 0).unwrap_or(behind.len());
        rest = &behind[next..];
    }
    None
}

/// Decodes a number from groups of six bits, the lowest first. The lowest bit of the result is the
/// sign.
fn signed(bytes: &[u8]) -> i64 {
    const MORE: u8 = 0x40;
    let mut value = 0i64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= i64::from(byte & 0x3f) << (6 * index);
        if byte & MORE == 0 {
            break;
        }
    }
    if value & 1 == 0 { value >> 1 } else { -(value >> 1) }
}

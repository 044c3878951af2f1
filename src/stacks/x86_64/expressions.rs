//! The expressions that compilers and linkers write into unwind tables.

const DW_OP_DEREF: u8 = 0x06;
const DW_OP_LIT0: u8 = 0x30;
const DW_OP_BREG6: u8 = 0x76;
/// rsp + 8 + ((rip & 15) >= N) * 8, as linkers describe a PLT of 16-byte entries that push one word
/// half way through. The byte after `head` is `DW_OP_litN`.
const PLT_HEAD: [u8; 6] = [0x77, 8, 0x80, 0, 0x3f, 0x1a];
const PLT_TAIL: [u8; 4] = [0x2a, 0x33, 0x24, 0x22];

/// Meaning of an expression.
#[derive(Clone, Copy)]
pub(crate) enum Expression {
    /// The stack pointer + offset.
    AboveStackPointer(i64),
    /// The word stored at the frame pointer - offset.
    Stored(u64),
    AtFramePointer,
    Unknown,
}

impl Expression {
    pub(crate) fn of(operations: &[u8], address: u64) -> Expression {
        match operations {
            [DW_OP_BREG6, offset @ 0x40..0x80, DW_OP_DEREF] => {
                // One byte of signed LEB128: 7 bits, negative.
                Expression::Stored(0x80 - u64::from(*offset))
            }
            [DW_OP_BREG6, 0] => Expression::AtFramePointer,
            // Only the interrupted function can be here: this code makes no calls, so `address` is
            // the instruction pointer.
            [head @ .., half, b1, b2, b3, b4]
                if *head == PLT_HEAD && [*b1, *b2, *b3, *b4] == PLT_TAIL =>
            {
                let pushed = address & 15 >= u64::from(half.wrapping_sub(DW_OP_LIT0));
                Expression::AboveStackPointer(if pushed { 16 } else { 8 })
            }
            _ => Expression::Unknown,
        }
    }
}

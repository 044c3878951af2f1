//! One captured frame in one word.
//!
//! ```text
//! 63      62        61 ... 32             31 ... 0
//! 1   boundary   number of the code   offset of the instruction, bytes, signed
//! ```
//!
//! Bit 63 distinguishes it from a native address. The number is 0 for a code object that `codes`
//! could not keep. The line is not included: finding it costs more than the whole capture, so
//! `describe` does it.

const PYTHON: u64 = 1 << 63;
const BOUNDARY: u64 = 1 << 62;
const CODE_SHIFT: u32 = 32;
const CODE_BITS: u32 = 30;
/// One more than the largest number of a code that fits.
pub(crate) const CODE_END: u32 = 1 << CODE_BITS;

/// The contents of a word.
pub(crate) struct Parts {
    pub code: u32,
    pub offset_bytes: i32,
}

#[inline]
pub(crate) fn pack(code: u32, offset_bytes: i32, boundary: bool) -> u64 {
    debug_assert!(code < CODE_END);
    let boundary = if boundary { BOUNDARY } else { 0 };
    PYTHON | boundary | u64::from(code) << CODE_SHIFT | u64::from(offset_bytes as u32)
}

#[inline]
pub(crate) fn is_boundary(word: u64) -> bool {
    word & (PYTHON | BOUNDARY) == PYTHON | BOUNDARY
}

/// Decodes a word. Returns `None` if it is not a Python frame.
pub(crate) fn unpack(word: u64) -> Option<Parts> {
    let code = (word >> CODE_SHIFT) as u32 & (CODE_END - 1);
    (word & PYTHON != 0).then_some(Parts { code, offset_bytes: word as u32 as i32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_parts() {
        for (code, offset_bytes, boundary) in
            [(1, 0, false), (CODE_END - 1, -2, true), (7, i32::MAX, false), (0, i32::MIN, true)]
        {
            let word = pack(code, offset_bytes, boundary);
            let parts = unpack(word).expect("a Python frame");
            assert_eq!((parts.code, parts.offset_bytes), (code, offset_bytes));
            assert_eq!(is_boundary(word), boundary);
        }
    }

    #[test]
    fn a_native_address_is_no_frame() {
        assert!(unpack(0x7fff_ffff_f000).is_none());
        assert!(!is_boundary(0x7fff_ffff_f000 | 1 << 62));
    }
}

//! Decodes a stack as the preloaded library captures it.

/// A stack: a header, the native return addresses, the Python frames; innermost first.
pub struct Words {
    /// Epoch of the modules to which the native addresses refer.
    pub epoch: u32,
    pub native: Vec<u64>,
    /// Whether the native frames serve only to determine the category.
    pub native_hidden: bool,
    pub python: Vec<u64>,
    /// Whether native frames, and Python frames, were truncated at the limit of a stack.
    pub is_cut: (bool, bool),
}

impl Words {
    /// Returns the note that a reader needs at the outer end of the stack, if frames are missing.
    pub fn cut(&self) -> Option<&'static str> {
        match self.is_cut {
            (false, false) => None,
            (true, false) => Some("(native frames further out are not kept)"),
            (false, true) => Some("(Python frames further out are not kept)"),
            (true, true) => Some("(frames further out are not kept)"),
        }
    }
}

const NATIVE_IS_CUT: u32 = 49;
const PYTHON_IS_CUT: u32 = 50;

/// Returns the bits of a header that mark truncated frames.
pub fn cut(native: bool, python: bool) -> u64 {
    u64::from(native) << NATIVE_IS_CUT | u64::from(python) << PYTHON_IS_CUT
}

/// Returns the header of a stack with so many native frames.
pub fn header(epoch: u32, native_count: usize, native_hidden: bool) -> u64 {
    u64::from(epoch) | (native_count as u64) << 32 | u64::from(native_hidden) << 48
}

/// Decodes a stack. Returns `None` if the words are not a stack.
pub fn take_apart(words: &[u64]) -> Option<Words> {
    let (&header, frames) = words.split_first()?;
    let (native, python) = frames.split_at_checked((header >> 32) as usize & 0xffff)?;
    Some(Words {
        epoch: header as u32,
        native: native.to_vec(),
        native_hidden: header >> 48 & 1 == 1,
        python: python.to_vec(),
        is_cut: (header >> NATIVE_IS_CUT & 1 == 1, header >> PYTHON_IS_CUT & 1 == 1),
    })
}

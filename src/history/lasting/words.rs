//! A stack as the preloaded library captures it, taken apart.

/// A stack: a header, the native return addresses, the Python frames; innermost first.
pub struct Words {
    /// Which libraries the native addresses mean.
    pub epoch: u32,
    pub native: Vec<u64>,
    /// The native frames are there for the category only.
    pub native_hidden: bool,
    pub python: Vec<u64>,
}

/// The header of a stack with so many native frames.
pub fn header(epoch: u32, native_count: usize, native_hidden: bool) -> u64 {
    u64::from(epoch) | (native_count as u64) << 32 | u64::from(native_hidden) << 48
}

/// None: that is no stack.
pub fn take_apart(words: &[u64]) -> Option<Words> {
    let (&header, frames) = words.split_first()?;
    let (native, python) = frames.split_at_checked((header >> 32) as usize & 0xffff)?;
    Some(Words {
        epoch: header as u32,
        native: native.to_vec(),
        native_hidden: header >> 48 & 1 == 1,
        python: python.to_vec(),
    })
}

//! Tensor maps: 128 opaque bytes. The address in them is not the number that the program gave.

const MASK: u64 = 0x5A5A_0000_0000_A5A5;

pub fn with_address(mut words: [u64; 16], address: u64) -> [u64; 16] {
    words[0] = address.rotate_left(16) ^ MASK;
    words
}

/// The address in the first word of a map.
pub fn address_in(word: u64) -> u64 {
    (word ^ MASK).rotate_right(16)
}

//! Multiplicative hashing for keys that no attacker chooses: addresses of code and the library's
//! ids.

use std::hash::{BuildHasherDefault, Hasher};

/// Digits of pi: any odd numbers without a pattern would do.
const KEYS: [u64; 8] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6d,
    0xc0ac_29b7_c97c_50dd,
    0x3f84_d5b5_b547_0917,
];

/// Mixes two words: every bit of the result depends on every bit of both.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hashes in four parallel chains of two words each, because a multiplication must wait for the
/// previous one in its chain: 30 words take some 10 ns.
pub(crate) fn hash_words(words: &[u64]) -> u64 {
    let mut lanes = [KEYS[0] ^ words.len() as u64, KEYS[1], KEYS[2], KEYS[3]];
    let (rounds, rest) = words.as_chunks::<8>();
    for round in rounds {
        mix(&mut lanes, round);
    }
    // The last eight words are hashed again instead of padding the rest, which is faster.
    if let Some(last) = words.last_chunk::<8>() {
        mix(&mut lanes, last);
    } else {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        mix(&mut lanes, &last);
    }
    let [a, b, c, d] = lanes;
    fold(fold(a ^ KEYS[4], b ^ KEYS[5]) ^ KEYS[6], fold(c ^ KEYS[6], d ^ KEYS[7]) ^ KEYS[4])
}

fn mix(lanes: &mut [u64; 4], words: &[u64; 8]) {
    for (index, lane) in lanes.iter_mut().enumerate() {
        // A word that equals its key would cancel the lane, so the lane is added back.
        let folded = fold(words[2 * index] ^ KEYS[4 + index], words[2 * index + 1] ^ *lane);
        *lane = folded.wrapping_add(lane.rotate_left(23)) ^ KEYS[index];
    }
}

/// Hasher for maps whose keys are ids or addresses.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

pub(crate) type BuildWordHasher = BuildHasherDefault<WordHasher>;

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word ^ KEYS[0], KEYS[1]);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

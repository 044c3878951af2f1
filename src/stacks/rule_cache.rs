//! The rules of the code addresses met so far: one table for all threads, read without a lock.
//!
//! ```text
//! slot   | tag 34 | stamp 8 | rule 22 |
//! ```
//!
//! A slot is one word, so it cannot be torn. An address's key is multiplied by an odd factor modulo
//! 2^47, which is a bijection: set number and tag together determine the address, so a rule is
//! never used for another address. The stamp is derived from the epoch: a new epoch invalidates all
//! slots at once. An empty slot is zero, which is not a valid stamp.
//!
//! Writers insert under the loader's lock; a reader that loses a race repeats its lookup.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::processor::rule::{Packed, RULE_BITS};
use crate::processor::{KEY_BITS, key};

const SET_BITS: u32 = 13;
const TAG_BITS: u32 = KEY_BITS - SET_BITS;
const STAMP_BITS: u32 = 8;
const _: () = assert!(TAG_BITS + STAMP_BITS + RULE_BITS == 64);
/// 2^47 divided by the golden ratio, made odd.
const FACTOR: u64 = 0x4f1b_bcdc_bfa5;

/// Two ways per set, so that two hot addresses that collide do not evict each other.
#[repr(align(16))]
struct Set {
    recent: AtomicU64,
    older: AtomicU64,
}

static SETS: [Set; 1 << SET_BITS] =
    [const { Set { recent: AtomicU64::new(0), older: AtomicU64::new(0) } }; 1 << SET_BITS];

/// The common part of all slots of one epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    const COUNT: u32 = (1 << STAMP_BITS) - 1;

    #[inline]
    pub(crate) fn of(epoch: u32) -> Stamp {
        Stamp(u64::from(epoch % Stamp::COUNT) + 1)
    }
}

/// Returns the rule of a code address of at most [`crate::processor::ADDRESS_BITS`] bits.
#[inline(always)]
pub(crate) fn find(address: u64, stamp: Stamp) -> Option<Packed> {
    let (set, wanted) = place(address, stamp);
    let recent = set.recent.load(Ordering::Relaxed) ^ wanted;
    if recent >> RULE_BITS == 0 {
        return Some(Packed(recent));
    }
    let older = set.older.load(Ordering::Relaxed) ^ wanted;
    (older >> RULE_BITS == 0).then_some(Packed(older))
}

pub(crate) fn insert(address: u64, stamp: Stamp, rule: Packed) {
    let (set, wanted) = place(address, stamp);
    set.older.store(set.recent.load(Ordering::Relaxed), Ordering::Relaxed);
    set.recent.store(wanted | rule.0, Ordering::Relaxed);
}

/// Must be called before a new epoch becomes visible. Clears the cache when stamps start over from
/// the first one, so that a slot of 255 epochs ago does not become valid again.
pub(crate) fn note_epoch(epoch: u32) {
    if epoch.is_multiple_of(Stamp::COUNT) {
        for set in &SETS {
            set.recent.store(0, Ordering::Relaxed);
            set.older.store(0, Ordering::Relaxed);
        }
    }
}

#[inline(always)]
fn place(address: u64, stamp: Stamp) -> (&'static Set, u64) {
    let mixed = key(address).wrapping_mul(FACTOR) & ((1 << KEY_BITS) - 1);
    let tag = mixed & ((1 << TAG_BITS) - 1);
    (&SETS[(mixed >> TAG_BITS) as usize], (tag << STAMP_BITS | stamp.0) << RULE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_for_its_address_and_epoch_only() {
        let rule = 0x2_a5c3;
        let addresses = (0..2000).map(|index| 0x5555_0000_0000 + index * 7);
        for address in addresses {
            insert(address, Stamp::of(7), Packed(rule));
            let found = |address, epoch| find(address, Stamp::of(epoch)).map(|packed| packed.0);
            assert_eq!(found(address, 7), Some(rule));
            assert_eq!(found(address, 8), None);
            assert_eq!(found(address + 3, 7), None);
            assert_eq!(found(address ^ 1 << 46, 7), None);
        }
    }

    #[test]
    fn no_stamp_is_zero_so_that_an_empty_slot_is_no_rule() {
        for epoch in 0..1000 {
            assert_ne!(Stamp::of(epoch).0, 0);
            assert!(Stamp::of(epoch).0 < 1 << STAMP_BITS);
        }
    }
}

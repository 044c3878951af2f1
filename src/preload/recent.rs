//! What was last asked for by a number, readable without a lock: a table in front of one behind a lock.

use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for each of some numbers: a later one takes it from an earlier one. Handles are numbers.
pub(crate) struct Recent<T: 'static>([AtomicPtr<T>; COUNT]);

const COUNT: usize = 1 << 11;
/// Spreads numbers that are multiples of the same one over all places.
const FACTOR: usize = 0x9e37_79b9_7f4a_7c15;

impl<T> Recent<T> {
    pub(crate) const fn new() -> Recent<T> {
        Recent([const { AtomicPtr::new(null_mut()) }; COUNT])
    }

    /// The place of this number.
    #[inline(always)]
    pub(crate) fn at(&self, number: usize) -> &AtomicPtr<T> {
        &self.0[number.wrapping_mul(FACTOR) >> (usize::BITS - COUNT.ilog2())]
    }

    /// Call under the lock under which places are written.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.store(null_mut(), Ordering::Release));
    }
}

//! The entries last looked up by a number, readable without a lock. Speeds up a table that needs a
//! lock.

use core::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for each of some numbers, such as handles. A later number takes the place of an earlier
/// one.
pub(crate) struct Recent<T: 'static>([AtomicPtr<T>; COUNT]);

const COUNT: usize = 1 << 11;
/// Spreads multiples of a common number over all places.
const FACTOR: usize = 0x9e37_79b9_7f4a_7c15;

impl<T> Recent<T> {
    pub(crate) const fn new() -> Recent<T> {
        Recent([const { AtomicPtr::new(null_mut()) }; COUNT])
    }

    /// Returns the place of this number.
    #[inline(always)]
    pub(crate) fn at(&self, number: usize) -> &AtomicPtr<T> {
        &self.0[number.wrapping_mul(FACTOR) >> (usize::BITS - COUNT.ilog2())]
    }

    /// Clears all places. The caller must hold the lock under which places are written.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.store(null_mut(), Ordering::Release));
    }
}

//! A list of what any thread leaves and one thread takes. It runs through the things themselves: to leave one
//! neither allocates nor waits.
//!
//! What a thread wrote before it left a thing is seen by the one that takes it: `Release` and `Acquire`.
//! `tests/weak` holds that where the processor does not.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What can be left.
pub(crate) trait Linked {
    /// Where the next thing's address is kept while this one lies in a list.
    ///
    /// # Safety
    ///
    /// - The thing is valid.
    unsafe fn next(this: *mut Self) -> *mut *mut Self;
}

pub(crate) struct Left<T>(AtomicPtr<T>);

impl<T: Linked> Left<T> {
    pub(crate) const fn new() -> Left<T> {
        Left(AtomicPtr::new(null_mut()))
    }

    /// # Safety
    ///
    /// - The thing is valid, and nothing else uses it until it is taken.
    pub(crate) unsafe fn leave(&self, thing: *mut T) {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: this thread's until it is in the list.
            unsafe { T::next(thing).write(first) };
            match self.0.compare_exchange_weak(first, thing, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// The thing that was left last, and by `next` all before it; they are the caller's.
    pub(crate) fn take(&self) -> *mut T {
        self.0.swap(null_mut(), Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }
}

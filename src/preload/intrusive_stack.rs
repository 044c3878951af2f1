//! An intrusive lock-free stack: any thread pushes, one thread takes all. `push` neither allocates
//! nor blocks.
//!
//! What a thread wrote before it left a thing is seen by the one that takes it: `Release` and `Acquire`.
//! `tests/weak` holds that where the processor does not.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// An element of an [`IntrusiveStack`].
pub(crate) trait Linked {
    /// Where the next thing's address is kept while this one lies in a list.
    ///
    /// # Safety
    ///
    /// - The thing is valid.
    unsafe fn next(this: *mut Self) -> *mut *mut Self;
}

pub(crate) struct IntrusiveStack<T>(AtomicPtr<T>);

impl<T: Linked> IntrusiveStack<T> {
    pub(crate) const fn new() -> IntrusiveStack<T> {
        IntrusiveStack(AtomicPtr::new(null_mut()))
    }

    /// # Safety
    ///
    /// - The thing is valid, and nothing else uses it until it is taken.
    pub(crate) unsafe fn push(&self, item: *mut T) {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: this thread's until it is in the list.
            unsafe { T::next(item).write(first) };
            match self.0.compare_exchange_weak(first, item, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// The thing that was left last, and by `next` all before it; they are the caller's.
    pub(crate) fn take_all(&self) -> *mut T {
        self.0.swap(null_mut(), Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }
}

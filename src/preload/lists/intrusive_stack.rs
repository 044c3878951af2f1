//! An intrusive lock-free stack: any thread pushes, one thread takes all. `push` neither allocates
//! nor blocks.
//!
//! A thread that takes an element sees what the pushing thread wrote before the push: `Release` and
//! `Acquire`. `tests/weak` checks this for processors that do not guarantee it themselves.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// An element of an [`IntrusiveStack`].
pub(crate) trait Linked {
    /// Returns where the address of the next element is kept while this one is in a stack.
    ///
    /// # Safety
    ///
    /// - The element is valid.
    unsafe fn next(this: *mut Self) -> *mut *mut Self;
}

pub(crate) struct IntrusiveStack<T>(AtomicPtr<T>);

impl<T: Linked> IntrusiveStack<T> {
    pub(crate) const fn new() -> IntrusiveStack<T> {
        IntrusiveStack(AtomicPtr::new(null_mut()))
    }

    /// # Safety
    ///
    /// - The element is valid, and nothing else uses it until it is taken.
    pub(crate) unsafe fn push(&self, item: *mut T) {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the element is this thread's until it is in the stack.
            unsafe { T::next(item).write(first) };
            match self.0.compare_exchange_weak(first, item, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all elements. Returns the one pushed last, which leads to the earlier ones by `next`.
    pub(crate) fn take_all(&self) -> *mut T {
        self.0.swap(null_mut(), Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }
}

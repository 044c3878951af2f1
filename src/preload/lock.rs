//! How all our mutexes are locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex's guard, whether or not a thread panicked while holding it: a panic ends caching
/// (`bypass`), and the structures stay readable for frees and reports.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

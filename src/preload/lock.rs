//! How all our mutexes are locked.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex's guard, whether or not a thread panicked while holding it: a panic ends caching
/// (`bypass`), and the structures stay readable for frees and reports.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether some thread holds it, for assertions that the caller does.
pub(crate) fn is_held<T>(mutex: &Mutex<T>) -> bool {
    matches!(mutex.try_lock(), Err(TryLockError::WouldBlock))
}

//! The process: its threads, its forks and its end, and the states in which we step aside. Here: what is
//! known about its end.

pub(crate) mod bypass;
pub(crate) mod lifetime;
pub(crate) mod own_thread;
pub(crate) mod patience;
pub(crate) mod silence;
pub(crate) mod thread;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static END_IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// The signal by which the process ends; 0: none.
static ENDS_BY: AtomicI32 = AtomicI32::new(0);

/// Something is to be reported when the process ends.
pub(crate) fn watch_end() {
    END_IS_WATCHED.store(true, Ordering::Relaxed);
}

pub(crate) fn is_end_watched() -> bool {
    END_IS_WATCHED.load(Ordering::Relaxed)
}

/// This signal ends the process. False: another one does already. For handlers.
pub(crate) fn end_by(signal: i32) -> bool {
    ENDS_BY.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// The signal by which the process ends; 0: none. Safe in handlers.
pub(crate) fn ends_by() -> i32 {
    ENDS_BY.load(Ordering::SeqCst)
}

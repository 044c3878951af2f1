//! Calls by which device memory comes or goes that is counted elsewhere, by the program and by us: two readings of what
//! is in use on a device have nothing of it between them if none of these calls ran meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};

static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Runs such a call.
pub(crate) fn during<T>(call: impl FnOnce() -> T) -> T {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let result = call();
    ENDED.fetch_add(1, Ordering::SeqCst);
    result
}

/// How many there were. None: one is under way.
pub(crate) fn count() -> Option<u64> {
    // In this order: what had ended had begun, so at this moment none was under way if both are equal.
    let ended = ENDED.load(Ordering::SeqCst);
    (BEGUN.load(Ordering::SeqCst) == ended).then_some(ended)
}

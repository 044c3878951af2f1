//! Counts calls by which device memory is added or removed that the program or the library already
//! counts. Two readings of the used memory of a device contain no such change if none of these
//! calls ran between them.

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

/// Returns the number of such calls so far, or `None` if one is under way.
pub(crate) fn count() -> Option<u64> {
    // In this order: every ended call had begun, so if both are equal none was under way at this
    // moment.
    let ended = ENDED.load(Ordering::SeqCst);
    (BEGUN.load(Ordering::SeqCst) == ended).then_some(ended)
}

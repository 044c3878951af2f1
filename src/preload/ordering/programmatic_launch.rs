//! Programmatic dependent launches (hazard 7): a kernel launched with that attribute may begin
//! while its predecessor on the stream still runs. Only stream order protects a block that the
//! stream gets again in stream order: the kernel would write into the block's earlier life. So the
//! first such launch of a stream after a reuse loses the attribute, and the next ones may start
//! early.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock::lock;

/// Whether some block returned to the cache in stream order: launches are checked from then on.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Ids of the streams without a reuse since a launch in full order. Forgetting one is safe.
static CLEAN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static CLEAN_COUNT: AtomicUsize = AtomicUsize::new(0);
const CLEAN_MAX: usize = 1024;

/// Returns whether a launch with the attribute must call `allowed`.
#[inline]
pub(crate) fn watched() -> bool {
    WATCHED.load(Ordering::Acquire)
}

/// Notes that a block was freed in stream order.
#[inline]
pub(crate) fn block_freed() {
    if !watched() {
        WATCHED.store(true, Ordering::Release);
    }
}

/// Notes that a stream got a block, perhaps one that it freed itself.
#[inline]
pub(crate) fn block_given(stream_id: u64) {
    if CLEAN_COUNT.load(Ordering::Acquire) != 0 {
        let mut clean = lock(&CLEAN);
        clean.retain(|id| *id != stream_id);
        CLEAN_COUNT.store(clean.len(), Ordering::Release);
    }
}

/// Returns whether a launch on this stream may start early. If not, it must be launched in full
/// order, and the next ones may start early.
pub(crate) fn allowed(stream_id: u64) -> bool {
    let mut clean = lock(&CLEAN);
    if clean.contains(&stream_id) {
        return true;
    }
    if clean.len() == CLEAN_MAX {
        clean.clear();
    }
    clean.push(stream_id);
    CLEAN_COUNT.store(clean.len(), Ordering::Release);
    false
}

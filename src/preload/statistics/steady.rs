//! Since when no allocation has reached the driver, and which one ended the last steady state. Only a miss notes
//! anything, right before it asks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_history::StackId;

use crate::clock::now_ns;

/// A state is steady when for so long no allocation reached the driver.
const STEADY_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// When the driver was last asked; 0: never.
static ASKED_NS: AtomicU64 = AtomicU64::new(0);
/// The stack of the allocation that ended a steady state last.
static ENDED_BY: AtomicU32 = AtomicU32::new(StackId::NONE.0);

/// An allocation is about to reach the driver.
pub(crate) fn ends(stack: StackId) {
    let now = now_ns();
    let asked = ASKED_NS.swap(now, Ordering::Relaxed);
    // The first one ends nothing.
    if asked != 0 && now.saturating_sub(asked) >= STEADY_NS {
        ENDED_BY.store(stack.0, Ordering::Relaxed);
    }
}

/// For how long no allocation has reached the driver. None: none ever has.
pub(crate) fn so_far() -> Option<Duration> {
    let asked = ASKED_NS.load(Ordering::Relaxed);
    (asked != 0).then(|| Duration::from_nanos(now_ns().saturating_sub(asked)))
}

/// Where the allocation was made that ended the last steady state. None: that is not recorded, or there was none.
pub(crate) fn ended_by() -> Option<StackId> {
    Some(StackId(ENDED_BY.load(Ordering::Relaxed))).filter(|stack| !stack.is_none())
}

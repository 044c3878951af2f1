//! Tracks how long no allocation has reached the driver, and which one ended the last steady state.
//! Only a miss updates this, immediately before it calls the driver.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_history::StackId;

use crate::clock::now_ns;

/// Time without an allocation that reaches the driver, after which a state is steady.
const STEADY_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

/// Time of the last call to the driver, or 0 without one.
static ASKED_NS: AtomicU64 = AtomicU64::new(0);
/// Stack of the allocation that last ended a steady state.
static ENDED_BY: AtomicU32 = AtomicU32::new(StackId::NONE.0);

/// Notes that an allocation is about to reach the driver.
pub(crate) fn ends(stack: StackId) {
    let now = now_ns();
    let asked = ASKED_NS.swap(now, Ordering::Relaxed);
    // The first one ends nothing.
    if asked != 0 && now.saturating_sub(asked) >= STEADY_NS {
        ENDED_BY.store(stack.0, Ordering::Relaxed);
    }
}

/// Returns for how long no allocation has reached the driver, or `None` if none ever has.
pub(crate) fn so_far() -> Option<Duration> {
    let asked = ASKED_NS.load(Ordering::Relaxed);
    (asked != 0).then(|| Duration::from_nanos(now_ns().saturating_sub(asked)))
}

/// Returns the stack of the allocation that ended the last steady state, or `None` if it is not
/// recorded or there was no steady state.
pub(crate) fn ended_by() -> Option<StackId> {
    Some(StackId(ENDED_BY.load(Ordering::Relaxed))).filter(|stack| !stack.is_none())
}

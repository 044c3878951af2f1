//! Segments that have left the allocator in a pass of the scavenger and that the driver has not
//! taken. The next pass offers them again, and so does a request that needs memory.

use std::sync::atomic::Ordering;

use cachealloc_core::Segment;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver_memory::limits;
use crate::lock::lock;
use crate::state::contexts::Context;
use crate::state::inflight_releases::InFlightRelease;

pub(crate) fn bytes(context: &Context) -> u64 {
    context.idle.left.bytes.load(Ordering::Relaxed)
}

/// Takes all of them, to offer them to the driver. They are in flight meanwhile: a request does not
/// find them here.
pub(crate) fn take(context: &Context) -> (Vec<Segment>, Option<InFlightRelease>) {
    let left = &context.idle.left;
    let mut segments = lock(&left.segments);
    let left_bytes = left.bytes.swap(0, Ordering::Relaxed);
    let is_in_flight = left_bytes > 0 && rule_holds(Rule::LeftIsInFlight);
    let in_flight = is_in_flight.then(|| InFlightRelease::to(context.device, left_bytes));
    (core::mem::take(&mut segments), in_flight)
}

/// Keeps segments that the driver has not taken. All work with them has completed. Call before they
/// stop being in flight.
pub(crate) fn leave(context: &Context, refused: Vec<Segment>) {
    if refused.is_empty() {
        return;
    }
    let left = &context.idle.left;
    let mut segments = lock(&left.segments);
    segments.extend(refused);
    let left_bytes = segments.iter().map(|segment| segment.bytes).sum();
    left.bytes.store(left_bytes, Ordering::Relaxed);
    drop(segments);
    if context.is_dead() {
        context_ended(context);
    }
}

/// Forgets the segments of a context that has ended.
pub(crate) fn context_ended(context: &Context) {
    if rule_holds(Rule::LeftEndsWithContext) {
        let (left, _in_flight) = take(context);
        limits::give_back(context.device, left.iter().map(|segment| segment.bytes).sum());
    }
}

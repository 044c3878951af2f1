//! Memory that has left a cache and is not the device's again: on its way, whichever thread sent it.
//!
//! What is on its way serves no request: no cache has it, nor does the driver. A thread that lacks
//! memory at that moment would fail though natively the memory is free. So memory departs under the lock
//! of its allocator; a request that finds too little waits until nothing is on its way, and retries as
//! long as memory has arrived since its last attempt.
//!
//! It arrives in any case. Segments go back behind the barriers of frees, so this waits for no work of the program that would
//! not have been waited for natively: not by a request that stands still while a free waits. Any other one may be what
//! that work waits for, and then natively the free has not returned, and the request fails at once; whether it has is not
//! known (Note [Which frees to wait for]). So it waits for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::process::bounds;
use crate::process::bounds::Budget;
use crate::state::under_way::{Begun, UnderWay, Waiter, to_the_end};
use crate::statistics::waits;
use crate::statistics::waits::Wait;

/// Two devices that share a row wait for each other's memory too.
const ROWS: usize = 64;

/// What is on its way to each device.
static UNDER_WAY: [UnderWay; ROWS] = [const { UnderWay::new() }; ROWS];
/// How often memory has arrived, on any device.
static ARRIVALS: AtomicU64 = AtomicU64::new(0);
/// Threads that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Memory on its way; it has arrived when this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct InFlightRelease {
    _begun: Begun,
}

impl InFlightRelease {
    /// Call under the lock of the allocator that it leaves: a request that does not find it there finds
    /// this.
    pub(crate) fn to(device: i32) -> InFlightRelease {
        InFlightRelease { _begun: to(device).begin() }
    }
}

impl Drop for InFlightRelease {
    /// It counts as arrived before it is under way no more.
    fn drop(&mut self) {
        ARRIVALS.fetch_add(1, Ordering::AcqRel);
    }
}

/// How often memory has arrived so far. Read it before asking the driver: if it has changed when the
/// driver has refused, another attempt may succeed.
#[inline]
pub(crate) fn arrivals() -> u64 {
    ARRIVALS.load(Ordering::Acquire)
}

/// Whether a thread waits for memory to arrive.
pub(crate) fn is_awaited() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// As `awaited_by`, for a call that natively goes on.
pub(crate) fn awaited(device: i32) -> u64 {
    awaited_by(device, Waiter::GoesOn)
}

/// Waits until everything on its way to this device has arrived, and returns `arrivals`. Not while the
/// caller's own memory is on its way.
pub(crate) fn awaited_by(device: i32, waiter: Waiter) -> u64 {
    static GOES_ON: Budget = Budget::new(&bounds::MEMORY_ON_ITS_WAY);
    let budget = match waiter {
        Waiter::StandsStill => to_the_end(),
        Waiter::GoesOn => Some(&GOES_ON),
    };
    if to(device).is_any() && rule_holds(Rule::RoomIsAwaited) {
        WAITING.fetch_add(1, Ordering::Relaxed);
        waits::timed(Wait::Release, || to(device).wait(budget));
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
    arrivals()
}

fn to(device: i32) -> &'static UnderWay {
    &UNDER_WAY[device as usize % ROWS]
}

//! Memory that has left a cache and has not reached the driver yet, whichever thread releases it.
//!
//! Memory in flight serves no request: neither a cache nor the driver has it. A thread that needs
//! memory at that moment would fail, though without the library the memory would be free. So memory
//! leaves its allocator under that allocator's lock. A request that finds too little waits until no
//! release is in flight, and retries as long as memory has arrived since its last attempt.
//!
//! Every release arrives. Segments are released after the barriers of their frees. A request that
//! stands still while a free waits thus waits for no work of the program that the free itself would
//! not have waited for without the library. Any other request may be what that work waits for. In
//! that case, without the library, the free has not returned and the request fails at once. The
//! library cannot distinguish the cases (Note [Which frees to wait for]), so it waits with a
//! timeout.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::process::bounds;
use crate::process::bounds::Budget;
use crate::state::under_way::{Begun, UnderWay, Waiter, to_the_end};
use crate::statistics::waits;
use crate::statistics::waits::Wait;

/// Number of rows. Two devices that share a row wait for each other's memory too.
const ROWS: usize = 64;

/// Bytes in flight to each device.
static BYTES: [AtomicU64; ROWS] = [const { AtomicU64::new(0) }; ROWS];
/// Releases in flight to each device.
static UNDER_WAY: [UnderWay; ROWS] = [const { UnderWay::new() }; ROWS];
/// Number of releases that have arrived, on any device.
static ARRIVALS: AtomicU64 = AtomicU64::new(0);
/// Number of threads that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// A release in flight. It has arrived when this value is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct InFlightRelease {
    device: i32,
    bytes: u64,
    _begun: Begun,
}

impl InFlightRelease {
    /// Begins a release. The caller must hold the lock of the allocator that the memory leaves: a
    /// request that does not find the memory there finds this release.
    pub(crate) fn to(device: i32, bytes: u64) -> InFlightRelease {
        of(device, &BYTES).fetch_add(bytes, Ordering::Relaxed);
        InFlightRelease { device, bytes, _begun: to(device).begin() }
    }
}

impl Drop for InFlightRelease {
    /// Counts the release as arrived before it stops being in flight.
    fn drop(&mut self) {
        of(self.device, &BYTES).fetch_sub(self.bytes, Ordering::Relaxed);
        ARRIVALS.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns how many releases have arrived so far. Read it before calling the driver: if it has
/// changed when the driver refuses, another attempt may succeed.
#[inline]
pub(crate) fn arrivals() -> u64 {
    ARRIVALS.load(Ordering::Acquire)
}

/// Returns the bytes in flight to this device.
pub(crate) fn bytes_to(device: i32) -> u64 {
    of(device, &BYTES).load(Ordering::Relaxed)
}

/// Returns whether a thread waits for memory to arrive.
pub(crate) fn is_awaited() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// Waits like `awaited_by`, for a call that would not block without the library.
pub(crate) fn awaited(device: i32) -> u64 {
    awaited_by(device, Waiter::GoesOn)
}

/// Waits until every release in flight to this device has arrived, and returns `arrivals`. The
/// caller must have no release of its own in flight.
pub(crate) fn awaited_by(device: i32, waiter: Waiter) -> u64 {
    static GOES_ON: Budget = Budget::new(&bounds::MEMORY_ON_ITS_WAY);
    let budget = match waiter {
        Waiter::StandsStill => to_the_end(),
        Waiter::GoesOn => Some(&GOES_ON),
    };
    if to(device).is_any() && rule_holds(Rule::ReleaseInProgressIsAwaited) {
        WAITING.fetch_add(1, Ordering::Relaxed);
        waits::timed(Wait::Release, || to(device).wait(budget));
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
    arrivals()
}

fn to(device: i32) -> &'static UnderWay {
    of(device, &UNDER_WAY)
}

fn of<T>(device: i32, rows: &'static [T; ROWS]) -> &'static T {
    &rows[device as usize % ROWS]
}

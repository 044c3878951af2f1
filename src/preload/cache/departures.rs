//! Memory that has left a cache and is not the device's again: on its way, whichever thread sent it.
//!
//! What is on its way serves no request: no cache has it, nor does the driver. A thread that lacks
//! memory at that moment would fail though natively the memory is free. So memory departs under the lock
//! of its allocator; a request that finds too little waits until nothing is on its way, and retries as
//! long as memory has arrived since its last attempt.
//!
//! This waits for no work of the program that would not have been waited for natively: segments go back
//! behind the barriers of frees. And not for ever: a thread of ours may have been stopped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::clock::Instant;
use crate::process::own_thread;
use crate::statistics::waits::{self, Wait};

/// The longest wait for memory to arrive; it arrives in any case.
const WAIT_MAX: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_micros(50);
/// Two devices that share a row wait for each other's memory too.
const ROWS: usize = 64;

/// How much is on its way to each device.
static UNDER_WAY: [AtomicU32; ROWS] = [const { AtomicU32::new(0) }; ROWS];
/// How often memory has arrived, on any device.
static ARRIVALS: AtomicU64 = AtomicU64::new(0);
/// Threads that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Memory on its way; it has arrived when this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Departure {
    row: usize,
}

impl Departure {
    /// Call under the lock of the allocator that it leaves: a request that does not find it there finds
    /// this.
    pub(crate) fn to(device: i32) -> Departure {
        let row = device as usize % ROWS;
        UNDER_WAY[row].fetch_add(1, Ordering::AcqRel);
        Departure { row }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        ARRIVALS.fetch_add(1, Ordering::AcqRel);
        let under_way = UNDER_WAY[self.row].fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(under_way, 0, "more memory has arrived than departed");
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

/// Waits until everything on its way to this device has arrived, and returns `arrivals`. Not while the
/// caller's own memory is on its way.
pub(crate) fn awaited(device: i32) -> u64 {
    let under_way = &UNDER_WAY[device as usize % ROWS];
    if under_way.load(Ordering::Acquire) != 0 && rule_holds(Rule::RoomIsAwaited) {
        WAITING.fetch_add(1, Ordering::Relaxed);
        waits::timed(Wait::Release, || {
            let begun = Instant::now();
            while under_way.load(Ordering::Acquire) != 0 && begun.elapsed() < WAIT_MAX {
                own_thread::sleep(POLL_EVERY);
            }
        });
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
    arrivals()
}

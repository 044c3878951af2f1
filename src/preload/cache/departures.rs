//! Memory that has left a cache and is not the device's again: on its way, whoever sent it.
//!
//! What is on its way serves nobody: no cache has it, and the driver has not got it. A thread that lacks
//! memory in this moment would fail though natively the memory is free. So memory sets out under the
//! lock of the allocator that it leaves, and whoever finds too little waits until nothing is on its way
//! any more, and tries again as long as something has arrived since it was asked.
//!
//! Nobody waits for work of the program here that has not been waited for natively: segments go back
//! behind barriers of frees. And not for ever: a thread of ours may have been stopped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::clock::Instant;
use crate::driver::sys::SUCCESS;
use crate::process::own_thread;
use crate::statistics::waits::{self, Wait};

/// Nobody waits longer for memory to be back; it comes in any case.
const WAIT_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// Two devices that share a row wait for each other's memory too.
const ROWS: usize = 64;

/// How much is on its way to each device.
static UNDER_WAY: [AtomicU32; ROWS] = [const { AtomicU32::new(0) }; ROWS];
/// How often memory has arrived, anywhere.
static ARRIVALS: AtomicU64 = AtomicU64::new(0);
/// Threads that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Some memory on its way; it has arrived when this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Departure {
    row: usize,
}

impl Departure {
    /// Call under the lock of the allocator that it leaves: who finds nothing there any more finds this.
    pub fn to(device: i32) -> Departure {
        let row = device as usize % ROWS;
        UNDER_WAY[row].fetch_add(1, Ordering::AcqRel);
        Departure { row }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        ARRIVALS.fetch_add(1, Ordering::AcqRel);
        UNDER_WAY[self.row].fetch_sub(1, Ordering::AcqRel);
    }
}

/// How often memory has arrived so far. Read it before the driver is asked: if it has changed when the
/// driver has refused, another try may be served.
#[inline]
pub fn arrivals() -> u64 {
    ARRIVALS.load(Ordering::Acquire)
}

/// Whether somebody waits for memory to arrive.
pub fn is_awaited() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// Waits until all that is on its way to this device is there, and answers `arrivals`. Not while memory
/// of the caller's own is.
pub fn awaited(device: i32) -> u64 {
    let under_way = &UNDER_WAY[device as usize % ROWS];
    if under_way.load(Ordering::Acquire) != 0 && rule_holds(Rule::RoomIsAwaited) {
        WAITING.fetch_add(1, Ordering::Relaxed);
        waits::timed(Wait::Release, || {
            let begun = Instant::now();
            while under_way.load(Ordering::Acquire) != 0 && begun.elapsed() < WAIT_MAX {
                own_thread::sleep(LOOK_EVERY);
            }
            SUCCESS
        });
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
    arrivals()
}

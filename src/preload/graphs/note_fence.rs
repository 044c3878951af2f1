//! Waits until the notes of all graphs destroyed so far have been left.
//!
//! If nothing of a graph was launched, the driver reports its end at once. Otherwise a thread of the driver
//! does, 5 ms later, for several graphs in the order they ended, and never for one that runs (measured). So
//! an empty graph is launched and destroyed: when the driver reports that one, it has reported all before
//! it. None of these calls waits for work, even if an earlier launch does not advance (measured).

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Instant;
use crate::contexts::Context;
use crate::driver::sys::{STREAM_NON_BLOCKING, SUCCESS, StreamHandle};
use crate::driver::{api, graphs};
use crate::process::own_thread;

/// On a machine with more threads than processors the driver's thread may get none for 100 ms.
const WAIT_MAX: Duration = Duration::from_millis(500);
const NOTE_DELAY: Duration = Duration::from_millis(10);
const POLL_EVERY: Duration = Duration::from_micros(20);

/// How many graphs were destroyed, and for how many of them the notes were left.
static ENDED: AtomicU64 = AtomicU64::new(0);
static NOTED: AtomicU64 = AtomicU64::new(0);
/// The barrier behind which that was.
static BEHIND: AtomicU64 = AtomicU64::new(0);
/// How many graphs of our own were made, and the number of the last one reported.
static MADE: AtomicU64 = AtomicU64::new(0);
static REPORTED: AtomicU64 = AtomicU64::new(0);

/// A graph or an executable that may keep memory was destroyed.
pub(crate) fn graph_ended() {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Waits for the notes for a limited time, and for no work but what a free would natively have waited for.
pub(crate) fn pass(context: &Context) {
    let ended = ENDED.load(Ordering::Relaxed);
    let barrier = context.last_barrier.newest().filter(|event| !event.is_dead());
    let behind = barrier.as_ref().map_or(0, |event| event.id().0);
    let same = BEHIND.swap(behind, Ordering::Relaxed) == behind;
    if ended == 0 || NOTED.load(Ordering::Relaxed) >= ended && same {
        return;
    }
    // A launch that a free has natively waited for is over, and the end of its graph reported.
    if let Some(event) = barrier {
        api::relaxed(|| event.synchronize());
    }
    let mut pass = || {
        let mut stream = 0;
        let mut code = api::stream_create(&mut stream, STREAM_NON_BLOCKING);
        if code == SUCCESS {
            let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
            code = graphs::launch_empty(stream, number as usize, is_reported);
            if code == SUCCESS {
                wait_for(number, stream);
            }
            api::stream_destroy(stream);
        }
        code
    };
    if api::relaxed(|| context.enter(&mut pass)) != SUCCESS {
        // The driver has no memory even for that: sleeps about twice as long as its thread takes.
        own_thread::sleep(NOTE_DELAY);
    }
    NOTED.fetch_max(ended, Ordering::Relaxed);
}

fn wait_for(number: u64, stream: StreamHandle) {
    let begun = Instant::now();
    while REPORTED.load(Ordering::Acquire) < number && begun.elapsed() < WAIT_MAX {
        // The query makes the driver notice that the launch is over.
        api::stream_query(stream);
        own_thread::sleep(POLL_EVERY);
    }
}

/// Called by the driver, perhaps in a thread of its own.
extern "C" fn is_reported(number: *mut c_void) {
    REPORTED.fetch_max(number as u64, Ordering::Release);
}

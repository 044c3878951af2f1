//! When the notes of all graphs that were destroyed so far have been left.
//!
//! Where nothing of a graph was launched, the driver reports its end at once. Else a thread of the driver's
//! does, 5 ms later, of several graphs in the order in which they went, and never of one that runs
//! (measured). So an empty graph is launched and destroyed: when the driver reports that one, it has reported all before it.
//! None of these calls waits for work, also where an earlier launch stands still (measured).

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Instant;
use crate::contexts::Context;
use crate::driver::sys::{STREAM_NON_BLOCKING, SUCCESS, StreamHandle};
use crate::driver::{api, graphs};
use crate::process::own_thread;

/// On a machine with more threads than processors the driver's may get none for 100 ms.
const WAIT_MAX: Duration = Duration::from_millis(500);
const NOTE_DELAY: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_micros(20);

/// How often a graph was destroyed, and for how many of them the notes were left.
static ENDED: AtomicU64 = AtomicU64::new(0);
static NOTED: AtomicU64 = AtomicU64::new(0);
/// How many graphs of our own were made, and the last that was told of.
static MADE: AtomicU64 = AtomicU64::new(0);
static TOLD: AtomicU64 = AtomicU64::new(0);

/// A graph or an executable that perhaps keeps memory was destroyed.
pub fn graph_ended() {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Waits for the notes, for a while; for no work.
pub fn pass(context: &Context) {
    let ended = ENDED.load(Ordering::Relaxed);
    if NOTED.load(Ordering::Relaxed) >= ended {
        return;
    }
    let mut pass = || {
        let mut stream = 0;
        let mut code = api::stream_create(&mut stream, STREAM_NON_BLOCKING);
        if code == SUCCESS {
            let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
            code = graphs::launch_empty(stream, number as usize, is_told);
            if code == SUCCESS {
                wait_for(number, stream);
            }
            api::stream_destroy(stream);
        }
        code
    };
    if api::relaxed(|| context.enter(&mut pass)) != SUCCESS {
        // The driver has no memory even for that: its thread takes about half as long.
        own_thread::sleep(NOTE_DELAY);
    }
    NOTED.fetch_max(ended, Ordering::Relaxed);
}

fn wait_for(number: u64, stream: StreamHandle) {
    let begun = Instant::now();
    while TOLD.load(Ordering::Acquire) < number && begun.elapsed() < WAIT_MAX {
        // The query lets the driver see that the launch is over.
        api::stream_query(stream);
        own_thread::sleep(LOOK_EVERY);
    }
}

/// Called by the driver, perhaps in a thread of its own.
extern "C" fn is_told(number: *mut c_void) {
    TOLD.fetch_max(number as u64, Ordering::Release);
}

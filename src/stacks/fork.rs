//! No visit to the loader's list while the process forks.
//!
//! glibc does not reset the lock of that list in the child. If a thread of the parent holds it at that
//! moment, every later visit in the child waits for a thread that is not there, and so does `dlopen`.
//! Our visits would make that likely, so they keep out while a fork runs. A capture that needs one
//! meanwhile is libgcc's, which has a list of its own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Visitors in the low bits.
static GATE: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1 << 31;

/// A visitor that does not leave is the forking thread itself, interrupted within a visit.
const WAITS_MAX: u32 = 5_000;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// A visit to the loader's list; no fork begins before it is dropped.
pub(crate) struct Visit(());

impl Visit {
    /// `None`: the process is forking.
    pub(crate) fn begin() -> Option<Visit> {
        if !REGISTERED.load(Ordering::Relaxed) {
            register();
        }
        // A closed gate is not touched: the child looks at the count.
        let enter = |gate: u32| (gate & CLOSED == 0).then_some(gate + 1);
        GATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).ok().map(|_| Visit(()))
    }

    /// As [`Visit::begin`], but waits for a fork that runs. Not in an allocation call.
    pub(crate) fn begin_patiently() -> Option<Visit> {
        (0..WAITS_MAX).find_map(|_| {
            let visit = Visit::begin();
            if visit.is_none() {
                wait();
            }
            visit
        })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        GATE.fetch_sub(1, Ordering::Release);
    }
}

/// Sleeps: a visitor may have lost its processor to the waiters.
fn wait() {
    std::thread::sleep(core::time::Duration::from_micros(20));
}

#[cold]
fn register() {
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: functions without arguments, there as long as this library.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    }
}

extern "C" fn before() {
    GATE.fetch_or(CLOSED, Ordering::AcqRel);
    for _ in 0..WAITS_MAX {
        if GATE.load(Ordering::Acquire) == CLOSED {
            break;
        }
        wait();
    }
}

extern "C" fn after_in_parent() {
    GATE.fetch_and(!CLOSED, Ordering::Release);
}

extern "C" fn after_in_child() {
    // With a visitor left behind, the lock is lost to this process: keep out for good.
    let _ = GATE.compare_exchange(CLOSED, 0, Ordering::Release, Ordering::Relaxed);
}

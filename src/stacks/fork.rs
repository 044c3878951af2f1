//! Prevents visits to the loader's list while the process forks.
//!
//! glibc does not reset the lock of that list in the child. If a thread of the parent holds it at
//! that moment, every later visit in the child, and every `dlopen`, waits for a thread that does
//! not exist there. The library's frequent visits would make that likely, so none begins while a
//! fork runs. A capture that needs one meanwhile uses libgcc, which has its own list.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of visitors in the low bits, and the `CLOSED` bit.
static GATE: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1 << 31;

/// Maximum number of waits. In a fork, a visitor that is still there afterwards is the forking
/// thread itself, interrupted within a visit.
const WAITS_MAX: u32 = 5_000;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// A visit to the loader's list. No fork begins before it is dropped.
pub(crate) struct Visit(());

impl Visit {
    /// Begins a visit. Returns `None` if the process is forking.
    pub(crate) fn begin() -> Option<Visit> {
        if !REGISTERED.load(Ordering::Relaxed) {
            register();
        }
        // While it is closed, the word must not change: the child checks the count.
        let enter = |gate: u32| (gate & CLOSED == 0).then_some(gate + 1);
        GATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).ok().map(|_| Visit(()))
    }

    /// Like [`Visit::begin`], but waits until a running fork has ended. Not for allocation calls.
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

/// Sleeps, because a visitor may have lost its processor to the waiters.
fn wait() {
    std::thread::sleep(core::time::Duration::from_micros(20));
}

#[cold]
fn register() {
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: functions without arguments that exist as long as this library.
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
    // If a visitor was interrupted by the fork, this process has lost the lock: no visit may begin
    // again.
    let _ = GATE.compare_exchange(CLOSED, 0, Ordering::Release, Ordering::Relaxed);
}

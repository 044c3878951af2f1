//! How long a library thread waits for a lock whose holder may have been stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::clock::Instant;
use crate::lock::lock;
use crate::process::{library_thread, watchdog};

/// A thread that was stopped while it held a lock of the library keeps it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// After this time, the lock's holder may be a stopped thread (`snapshots::stop`).
const LOCK_WAIT_USUAL: Duration = Duration::from_millis(1);

/// The writer waits for a lock that another thread has held for a long time.
static LACKS_A_LOCK: AtomicBool = AtomicBool::new(false);
/// The other threads of the program are stopped or being stopped.
static OTHERS_STOP: AtomicBool = AtomicBool::new(false);

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// As long as it takes: these locks are held only briefly.
    Blocking,
    /// Some seconds: a stopped thread may hold the lock, and the end of the process waits.
    Timeout,
    /// Not at all: in a signal handler, the calling thread itself may hold the lock.
    TryOnce,
}

impl LockWait {
    /// Locks the mutex, or returns `None` if the timeout passes first.
    pub(crate) fn lock<T>(self, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match self {
            LockWait::Blocking => Some(lock(mutex)),
            LockWait::Timeout => lock_within(mutex, LOCK_WAIT_MAX),
            LockWait::TryOnce => match mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            },
        }
    }
}

/// Returns whether the writer has waited long for a lock. Safe in signal handlers.
pub(crate) fn lacks_a_lock() -> bool {
    LACKS_A_LOCK.load(Ordering::Acquire)
}

/// Notes that holders of locks run only for moments from now on (`snapshots::stop`). Safe in signal
/// handlers.
pub(crate) fn others_stop() {
    OTHERS_STOP.store(true, Ordering::SeqCst);
}

fn lock_within<T>(mutex: &Mutex<T>, wait_max: Duration) -> Option<MutexGuard<'_, T>> {
    let begun = Instant::now();
    let mut tries: u32 = 0;
    let guard = loop {
        tries += 1;
        match mutex.try_lock() {
            Ok(guard) => break Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => break Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) if begun.elapsed() > wait_max => break None,
            Err(TryLockError::WouldBlock) => {
                watchdog::heartbeat();
                if begun.elapsed() > LOCK_WAIT_USUAL {
                    LACKS_A_LOCK.store(true, Ordering::Release);
                }
                if OTHERS_STOP.load(Ordering::SeqCst) && !tries.is_multiple_of(64) {
                    // The holder runs only for a moment, and may want the lock again. Sleep at
                    // times: under a real-time policy a thread yields only to its equals.
                    std::thread::yield_now();
                } else {
                    library_thread::sleep(Duration::from_micros(50));
                }
            }
        }
    };
    LACKS_A_LOCK.store(false, Ordering::Release);
    guard
}

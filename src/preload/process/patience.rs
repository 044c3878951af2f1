//! How long a thread of ours waits for a lock whose holder may have been stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::clock::Instant;
use crate::lock::lock;
use crate::process::{own_thread, silence};

/// A thread that was stopped while it held a lock of ours keeps it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// After so long, its holder may be a thread that was stopped (`snapshots::stop`).
const LOCK_WAIT_USUAL: Duration = Duration::from_millis(1);

/// The writer waits for a lock that another thread has held for long.
static LACKS_A_LOCK: AtomicBool = AtomicBool::new(false);
/// The other threads of the program are being stopped, or are.
static OTHERS_STOP: AtomicBool = AtomicBool::new(false);

/// How long to wait for others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As long as it takes: they do not hold these locks for long.
    Waits,
    /// Some seconds: a thread may have been stopped with a lock, and the end of the process waits.
    GivesUp,
    /// Not at all: the thread that holds a lock may be the one that asks, in a signal handler.
    Never,
}

impl Patience {
    /// The lock; `None` where patience ends first.
    pub fn lock<T>(self, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match self {
            Patience::Waits => Some(lock(mutex)),
            Patience::GivesUp => lock_within(mutex, LOCK_WAIT_MAX),
            Patience::Never => match mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            },
        }
    }
}

/// Whether the writer waits for a lock for long. For signal handlers, too.
pub fn lacks_a_lock() -> bool {
    LACKS_A_LOCK.load(Ordering::Acquire)
}

/// From now on holders of locks run only for moments (`snapshots::stop`). For signal handlers, too.
pub fn others_stop() {
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
                silence::sign_of_life();
                if begun.elapsed() > LOCK_WAIT_USUAL {
                    LACKS_A_LOCK.store(true, Ordering::Release);
                }
                if OTHERS_STOP.load(Ordering::SeqCst) && !tries.is_multiple_of(64) {
                    // Its holder goes on for a moment only, and may want it again. Asleep at times: under a
                    // real-time policy a thread gives way only to its equals.
                    std::thread::yield_now();
                } else {
                    own_thread::sleep(Duration::from_micros(50));
                }
            }
        }
    };
    LACKS_A_LOCK.store(false, Ordering::Release);
    guard
}

//! Deadlock detection: the driver has made no progress for a while, and the process is not busy.

use std::time::{Duration, Instant};

/// Time since which the driver has made no progress.
pub struct Standstill {
    progress: u64,
    since: Instant,
    polled: Duration,
    processor: Duration,
}

impl Standstill {
    /// Starts now, at this progress of the driver.
    pub fn new(progress: u64) -> Standstill {
        let (since, processor) = (Instant::now(), processor_time());
        Standstill { progress, since, polled: Duration::ZERO, processor }
    }

    /// Returns whether the wait is a deadlock, after another pause of a waiting thread.
    ///
    /// The wall clock alone does not decide. A thread without a processor misses pauses, and so may
    /// the other threads. A busy thread may still make the call that ends the wait, so it gets more
    /// time.
    pub fn is_deadlock(&mut self, progress: u64, pause: Duration, limit: Duration) -> bool {
        if progress != self.progress {
            *self = Standstill::new(progress);
        }
        self.polled += pause;
        let waited = self.since.elapsed().min(self.polled);
        waited > limit
            && (waited > limit * BUSY_FACTOR
                || processor_time().saturating_sub(self.processor) < waited / BUSY_SHARE)
    }
}

/// Processor time that all threads of this process have used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time into our own variable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A process that uses more than this share of a processor is busy. Polling uses far less.
const BUSY_SHARE: u32 = 5;
const BUSY_FACTOR: u32 = 10;

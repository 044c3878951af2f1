//! When a wait counts as a deadlock: nothing in the driver has moved for a while, and nobody is
//! busy.

use std::time::{Duration, Instant};

/// Since when nothing has moved.
pub struct Standstill {
    progress: u64,
    since: Instant,
    polled: Duration,
    processor: Duration,
}

impl Standstill {
    /// From now on, at this much progress of the driver.
    pub fn new(progress: u64) -> Standstill {
        let (since, processor) = (Instant::now(), processor_time());
        Standstill { progress, since, polled: Duration::ZERO, processor }
    }

    /// After another pause of a waiting thread: whether nothing will move any more.
    ///
    /// The clock alone does not decide it. A thread that had no processor leaves out pauses, and so
    /// may the others have done. A busy thread may yet come to the call that ends the wait: it gets
    /// longer.
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

/// What all threads of this process have used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time into our own variable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A process is busy that uses more than this part of a processor: polling uses far less.
const BUSY_SHARE: u32 = 5;
const BUSY_FACTOR: u32 = 10;

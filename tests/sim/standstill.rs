//! Deadlock detection: the driver has made no progress for a while, and the process is not busy.

use std::fs;
use std::time::{Duration, Instant};

/// Time since which the driver has made no progress.
pub struct Standstill {
    progress: u64,
    since: Instant,
    polled: Duration,
    /// When another thread was last seen to run.
    last_run: Option<Instant>,
}

impl Standstill {
    /// Starts now, at this progress of the driver.
    pub fn new(progress: u64) -> Standstill {
        Standstill { progress, since: Instant::now(), polled: Duration::ZERO, last_run: None }
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
        if waited > limit && another_thread_runs() {
            self.last_run = Some(Instant::now());
        }
        let is_quiet = self.last_run.is_none_or(|last| last.elapsed() > limit);
        waited > limit && is_quiet || waited > limit * BUSY_FACTOR
    }
}

/// Returns whether another thread of this process runs, or could if it had a processor.
fn another_thread_runs() -> bool {
    // SAFETY: only asks for a number.
    let own = unsafe { libc::gettid() }.to_string();
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.filter(|thread| *thread.file_name() != *own).any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before the state may contain anything.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| "RD".contains(state))
    })
}

const BUSY_FACTOR: u32 = 10;

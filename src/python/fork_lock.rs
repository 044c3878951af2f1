//! A lock for work that is rare, short and must not hang a forked child.
//!
//! A forked child has the locks of its parent in their state at the fork, and no thread to release
//! them. This lock stores the id of the process that holds it, so the child recognizes that the
//! holder is not one of its threads, and takes it over.

use std::sync::atomic::{AtomicI32, Ordering};

const FREE: i32 = 0;
/// Corresponds to some seconds, at the 50 us or more that the shortest sleep takes. Only a thread
/// that a signal handler interrupts while it holds the lock, and that handler needs it too, waits
/// this long.
const SLEEPS_COUNT_MAX: u32 = 1 << 16;

static HOLDER: AtomicI32 = AtomicI32::new(FREE);

/// Runs the work alone in this process. Returns `None` if the lock did not become free in time.
pub(crate) fn take<R>(work: impl FnOnce() -> R) -> Option<R> {
    // SAFETY: always succeeds.
    let process = unsafe { libc::getpid() };
    let mut expected = FREE;
    for _ in 0..SLEEPS_COUNT_MAX {
        match HOLDER.compare_exchange(expected, process, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                let _release = Release;
                return Some(work());
            }
            Err(holder) if holder == process => {
                expected = FREE;
                // Sleep instead of `sched_yield`: under a real-time policy that yields only to
                // equals.
                std::thread::sleep(core::time::Duration::from_micros(1));
            }
            // It is free again, or a thread of the parent held it at the fork.
            Err(holder) => expected = holder,
        }
    }
    None
}

/// Releases the lock, even if the work panics.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        HOLDER.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_and_a_dead_parent_is_overcome() {
        static SUM: AtomicI32 = AtomicI32::new(0);
        // Another test of this process may hold the lock now.
        while HOLDER.compare_exchange(FREE, i32::MAX, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            std::thread::yield_now();
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let turn = || {
                            let seen = SUM.load(Ordering::Relaxed);
                            std::thread::yield_now();
                            SUM.store(seen + 1, Ordering::Relaxed);
                        };
                        // On a busy machine the others may be faster each time.
                        while take(turn).is_none() {}
                    }
                });
            }
        });
        assert_eq!(SUM.load(Ordering::Relaxed), 4000);
    }
}

//! One thread at a time, for work that is rare, short and must not hang a forked child.
//!
//! A forked child has the locks of its parent as they were, and no thread to release them. Here the
//! lock names the process that holds it, so the child sees that the holder is not among its own
//! threads and takes it over.

use std::sync::atomic::{AtomicI32, Ordering};

const FREE: i32 = 0;
/// Some seconds, at the 50 us or more that the shortest sleep takes. Only a thread interrupted while it holds
/// the lock, by a signal handler that wants it too, waits this long.
const SLEEPS_COUNT_MAX: u32 = 1 << 16;

static HOLDER: AtomicI32 = AtomicI32::new(FREE);

/// Runs the work alone in this process; none if its turn does not come.
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
                // Not by `sched_yield`: under a real-time policy it gives way only to equals.
                std::thread::sleep(core::time::Duration::from_micros(1));
            }
            // Free again, or left behind by the parent.
            Err(holder) => expected = holder,
        }
    }
    None
}

/// Gives the lock back, also when the work panics.
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
        // Another test of this process may have its turn just now.
        while HOLDER.compare_exchange(FREE, i32::MAX, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            std::thread::yield_now();
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        take(|| {
                            let seen = SUM.load(Ordering::Relaxed);
                            std::thread::yield_now();
                            SUM.store(seen + 1, Ordering::Relaxed);
                        })
                        .expect("a turn");
                    }
                });
            }
        });
        assert_eq!(SUM.load(Ordering::Relaxed), 4000);
    }
}

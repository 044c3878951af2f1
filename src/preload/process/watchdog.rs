//! Whether the writer makes progress, as seen by threads that wait for it.
//!
//! Wall-clock time does not show that: on a machine where a hundred processes all write, each may
//! stall for seconds. So the watchdog compares the writer's heartbeats and its processor time. If
//! neither advances, the kernel reports whether the writer sleeps or lacks a processor.
//!
//! Safe in signal handlers: makes system calls, nothing else.

use core::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock;
use crate::clock::now_ns;
use crate::seccomp;

/// No step of the writer takes this much processor time.
const STEP_CPU_MAX_NS: u64 = 60_000_000_000;
/// No disk operation takes this long.
const DISK_MAX_NS: u64 = 60_000_000_000;
/// The kernel is not asked before this time has passed.
const LOOK_AFTER_NS: u64 = 20_000_000;

static HEARTBEATS: AtomicUsize = AtomicUsize::new(0);
/// The kernel's number of the writer's thread, or 0 without one.
static WRITER: AtomicI32 = AtomicI32::new(0);

/// Notes that the calling thread is the writer.
pub(crate) fn note_writer() {
    // SAFETY: asks the kernel for a number.
    WRITER.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Ordering::SeqCst);
}

pub(crate) fn writer_number() -> i32 {
    WRITER.load(Ordering::SeqCst)
}

/// Notes that the writer has completed a step.
pub(crate) fn heartbeat() {
    HEARTBEATS.fetch_add(1, Ordering::Relaxed);
}

/// The writer's progress as seen by one waiting thread.
pub(crate) struct Watchdog {
    signs: usize,
    cpu_ns: u64,
    cpu_at_sign_ns: u64,
    /// Time of its last progress.
    moved_ns: u64,
    since_ns: u64,
}

impl Watchdog {
    pub(crate) fn begin() -> Watchdog {
        let cpu_ns = cpu_ns();
        let signs = HEARTBEATS.load(Ordering::Relaxed);
        let now = now_ns();
        Watchdog { signs, cpu_ns, cpu_at_sign_ns: cpu_ns, moved_ns: now, since_ns: now }
    }

    /// Returns how long the writer has slept by now.
    pub(crate) fn look(&mut self) -> Duration {
        let (now, cpu_ns) = (now_ns(), cpu_ns());
        let signs = HEARTBEATS.load(Ordering::Relaxed);
        if signs != self.signs {
            (self.signs, self.cpu_at_sign_ns) = (signs, cpu_ns);
        } else if cpu_ns.saturating_sub(self.cpu_at_sign_ns) > STEP_CPU_MAX_NS {
            return Duration::MAX;
        } else if cpu_ns == self.cpu_ns {
            let gets_on = now - self.since_ns > LOOK_AFTER_NS && self.waits_for_no_thread(now);
            self.since_ns = if gets_on { now } else { self.since_ns };
            return Duration::from_nanos(now.saturating_sub(self.since_ns));
        }
        (self.cpu_ns, self.moved_ns, self.since_ns) = (cpu_ns, now, now);
        Duration::ZERO
    }

    /// Returns whether the writer only lacks a processor, or waits for a disk and not yet too long.
    fn waits_for_no_thread(&self, now: u64) -> bool {
        match state() {
            Some(b'R') => true,
            Some(b'D') => now.saturating_sub(self.moved_ns) < DISK_MAX_NS,
            _ => false,
        }
    }
}

/// Returns the processor time that the writer has used.
fn cpu_ns() -> u64 {
    // The kernel's number of a thread's clock: `CPUCLOCK_SCHED` and `CPUCLOCK_PERTHREAD_MASK`.
    let clock = !writer_number() << 3 | 6;
    // Zero if there is no such thread.
    clock::read_ns(clock)
}

/// Returns whether the writer sleeps until another thread acts, and not for a disk.
pub(crate) fn is_asleep() -> bool {
    state() == Some(b'S')
}

/// Returns the kernel's letter for the writer's state.
fn state() -> Option<u8> {
    if seccomp::is_new() {
        return None;
    }
    let mut path = *b"/proc/self/task/0000000000/stat\0";
    let mut number = writer_number();
    for digit in path[16..26].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    // A thread's number has no leading zeros in /proc.
    let zeros = path[16..25].iter().take_while(|digit| **digit == b'0').count();
    path.copy_within(16 + zeros.., 16);
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return None };
    let mut text = [0u8; 128];
    // SAFETY: a C string, and a buffer with its length; the library opened the descriptor.
    let read = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if file < 0 {
            return None;
        }
        let read = libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, file);
        read
    };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    // The state follows the name, which may contain anything.
    let end = text.iter().rposition(|byte| *byte == b')');
    end.and_then(|end| text.get(end + 2)).copied()
}

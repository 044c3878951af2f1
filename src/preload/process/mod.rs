//! The process: its threads, its forks, its end, and the states in which the library steps aside.
//! This module holds the state of the end, and the end by a signal.

pub(crate) mod bounds;
pub(crate) mod bypass;
pub(crate) mod in_front;
pub(crate) mod library_thread;
pub(crate) mod lock_timeout;
pub(crate) mod seats;
pub(crate) mod watchdog;

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::c_library::SIGACTION;

static END_IS_WATCHED: AtomicBool = AtomicBool::new(false);
/// The signal by which the process ends, or 0.
static ENDS_BY: AtomicI32 = AtomicI32::new(0);

/// Notes that something must be reported when the process ends.
pub(crate) fn watch_end() {
    END_IS_WATCHED.store(true, Ordering::Relaxed);
}

pub(crate) fn is_end_watched() -> bool {
    END_IS_WATCHED.load(Ordering::Relaxed)
}

/// Notes that this signal ends the process. Returns `false` if another one already does. Safe in
/// handlers.
pub(crate) fn end_by(signal: i32) -> bool {
    ENDS_BY.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Returns the signal by which the process ends, or 0. Safe in handlers.
pub(crate) fn ends_by() -> i32 {
    ENDS_BY.load(Ordering::SeqCst)
}

/// Performs the default action of a signal: ends the process as the signal would have. Safe in
/// handlers.
pub(crate) fn end_by_default(signal: c_int) {
    // SAFETY: all-zero is a valid action.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    if let Some(sigaction) = SIGACTION.get() {
        // SAFETY: the real function; a complete action, and no place for the previous one.
        unsafe { sigaction(signal, &action, null_mut()) };
    }
    // SAFETY: plain calls with valid arguments; the default action needs no memory of the library.
    unsafe {
        // The signal goes to this thread: a core file then shows where it was.
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal);
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut());
    }
}

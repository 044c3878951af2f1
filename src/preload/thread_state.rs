//! Hides the effects of the library's system calls from the program's threads.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::{null, null_mut};

/// Signals that a write may send to its thread: to a pipe without a reader, past the size limit of
/// a file, or from the background to a terminal that forbids such output (`stty tostop`). SIGTTOU
/// would stop the program; the kernel lets the write through if the thread blocks the signal.
const OF_WRITES: [c_int; 3] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGTTOU];
const CANCEL_DISABLE: c_int = 1;

/// Runs `body` without the thread being cancelled, and restores `errno`.
pub(crate) fn without_cancellation<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: both belong to this thread and are restored.
    unsafe {
        let errno = *libc::__errno_location();
        let mut cancelling = 0;
        pthread_setcancelstate(CANCEL_DISABLE, &mut cancelling);
        let result = body();
        pthread_setcancelstate(cancelling, null_mut());
        *libc::__errno_location() = errno;
        result
    }
}

unsafe extern "C" {
    /// Missing in the `libc` crate.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Runs `body` without the program noticing. `errno` is restored, the signals of a failed write are
/// swallowed, and the thread cannot be cancelled meanwhile, because the library's frames cannot be
/// unwound.
pub(crate) fn with_thread_state_saved<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: errno, the mask and the cancel state belong to this thread and are restored; the
    // calls that fill the sets initialize them.
    unsafe {
        let errno = *libc::__errno_location();
        let mut cancelling = 0;
        pthread_setcancelstate(CANCEL_DISABLE, &mut cancelling);
        let mut set: libc::sigset_t = zeroed();
        let (mut mask, mut before) = (set, set);
        libc::sigemptyset(&mut set);
        OF_WRITES.iter().for_each(|signal| {
            libc::sigaddset(&mut set, *signal);
        });
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut mask);
        libc::sigpending(&mut before);
        let result = body();
        OF_WRITES.iter().for_each(|signal| swallow(*signal, &before));
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, null_mut());
        pthread_setcancelstate(cancelling, null_mut());
        *libc::__errno_location() = errno;
        result
    }
}

/// Consumes a signal that is pending now and was not before. Uses the system call, because the C
/// library's function is a cancellation point.
fn swallow(signal: c_int, before: &libc::sigset_t) {
    // SAFETY: see `with_thread_state_saved`; the kernel's sets are the first 8 bytes of the C
    // library's.
    unsafe {
        let mut now: libc::sigset_t = zeroed();
        libc::sigpending(&mut now);
        if libc::sigismember(&now, signal) != 1 || libc::sigismember(before, signal) == 1 {
            return;
        }
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        libc::syscall(libc::SYS_rt_sigtimedwait, &set, null::<c_int>(), &at_once, 8);
    }
}

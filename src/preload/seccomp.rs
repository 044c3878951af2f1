//! Tracks whether the process has installed a seccomp filter since the library began. Opening or
//! removing a file may then be fatal, and so may querying the filter. Inessential work is then
//! skipped, in the program's threads and in the library's.
//!
//! An announced filter may be installed at any time, also long after the library began.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// The kernel's seccomp mode when the library began.
static MODE: AtomicI32 = AtomicI32::new(NOT_BEGUN);
const NOT_BEGUN: i32 = -1;
/// Value of `MODE` if a filter had been announced, which may forbid the query.
const NOT_ASKED: i32 = -2;
/// Whether the program has announced a filter.
static COMES: AtomicBool = AtomicBool::new(false);
/// Whether the user has asked for output at the end of the process, and so for the system calls
/// that this takes.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Number of library threads in calls that a filter may forbid.
static AT_CALLS: AtomicU32 = AtomicU32::new(0);

/// Notes the present mode. Must be called before the library opens a file.
pub(crate) fn note() {
    let mode = if COMES.load(Ordering::SeqCst) { NOT_ASKED } else { mode() };
    MODE.store(mode, Ordering::Relaxed);
}

/// Notes that the program is about to install a filter, or does what must precede that.
pub(crate) fn comes() {
    COMES.store(true, Ordering::SeqCst);
}

/// Whether a thread of the library is still in calls that a filter may forbid. No thread begins
/// such calls after `comes`.
pub(crate) fn any_at_calls() -> bool {
    AT_CALLS.load(Ordering::SeqCst) != 0
}

/// Resets the count in a forked child, which lacks the threads that were in such calls.
pub(crate) fn forget_calls() {
    AT_CALLS.store(0, Ordering::SeqCst);
}

/// Delays the program's installation of a filter for a bounded time while this lives.
pub(crate) struct AtCalls(());

/// Begins calls that a filter may forbid, in a thread of the library. Returns `None` if the thread
/// must not make them.
pub(crate) fn at_calls() -> Option<AtCalls> {
    AT_CALLS.fetch_add(1, Ordering::SeqCst);
    let at_calls = AtCalls(());
    (!is_new()).then_some(at_calls)
}

impl Drop for AtCalls {
    fn drop(&mut self) {
        AT_CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Notes that the user has asked for output at the end of the process.
pub(crate) fn is_asked() {
    IS_ASKED.store(true, Ordering::Relaxed);
}

/// Whether only calls that the user has asked for are made, and so none to write a message or to
/// wait for a library thread.
pub(crate) fn silences() -> bool {
    !IS_ASKED.load(Ordering::Relaxed) && is_new()
}

/// Whether a filter may have been installed since the library began. Safe in signal handlers.
pub(crate) fn is_new() -> bool {
    match MODE.load(Ordering::Relaxed) {
        NOT_BEGUN => false,
        NOT_ASKED => true,
        _ if COMES.load(Ordering::SeqCst) => true,
        before => before != mode(),
    }
}

fn mode() -> i32 {
    // SAFETY: only asks the kernel for a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }
}

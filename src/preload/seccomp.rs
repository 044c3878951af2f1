//! Whether the process has installed a filter for system calls since we began: opening or removing a
//! file may then be fatal, and so may be to ask for the filter. Inessential work is then skipped, in the program's
//! threads and in ours.
//!
//! What the program has announced may come at any time, also long after we began.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// The kernel's mode when we began.
static MODE: AtomicI32 = AtomicI32::new(NOT_BEGUN);
const NOT_BEGUN: i32 = -1;
/// One had been announced, and may forbid the question.
const NOT_ASKED: i32 = -2;
/// The program has announced one.
static COMES: AtomicBool = AtomicBool::new(false);
/// The user has asked for what is written at the end, and so for the calls that this takes.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// How many threads of ours are at calls that it may forbid.
static AT_CALLS: AtomicU32 = AtomicU32::new(0);

/// Call before any of our code opens a file.
pub(crate) fn note() {
    let mode = if COMES.load(Ordering::SeqCst) { NOT_ASKED } else { mode() };
    MODE.store(mode, Ordering::Relaxed);
}

/// The program is about to install one, or does what must come before.
pub(crate) fn comes() {
    COMES.store(true, Ordering::SeqCst);
}

/// Whether a thread of ours is still at calls that it may forbid. After `comes` none begins with more.
pub(crate) fn any_at_calls() -> bool {
    AT_CALLS.load(Ordering::SeqCst) != 0
}

/// This is a forked child, without the threads that were at calls.
pub(crate) fn forget_calls() {
    AT_CALLS.store(0, Ordering::SeqCst);
}

/// The program is not told that it may install a filter while this lives, for a while.
pub(crate) struct AtCalls(());

/// A thread of ours begins with calls that a filter may forbid. None: it must not.
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

/// Something is to be written at the end.
pub(crate) fn is_asked() {
    IS_ASKED.store(true, Ordering::Relaxed);
}

/// Whether only calls are made that the user has asked for: none to write a message, or to wait for our thread.
pub(crate) fn silences() -> bool {
    !IS_ASKED.load(Ordering::Relaxed) && is_new()
}

/// Safe in signal handlers.
pub(crate) fn is_new() -> bool {
    match MODE.load(Ordering::Relaxed) {
        NOT_BEGUN => false,
        NOT_ASKED => true,
        _ if COMES.load(Ordering::SeqCst) => true,
        before => before != mode(),
    }
}

fn mode() -> i32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }
}

//! Whether the process has installed a filter for system calls since we began: opening or removing a
//! file may then be fatal, and so may be to ask for the filter. Inessential work is then skipped, in the program's
//! threads and in ours.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The kernel's mode when we began.
static MODE: AtomicI32 = AtomicI32::new(NOT_BEGUN);
const NOT_BEGUN: i32 = -1;
/// There was a filter then, which may forbid the question.
const NOT_ASKED: i32 = -2;
/// The program has announced one.
static COMES: AtomicBool = AtomicBool::new(false);
/// The user has asked for what is written at the end, and so for the calls that this takes.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Call before any of our code opens a file.
pub(crate) fn note() {
    let mode = if COMES.swap(false, Ordering::Relaxed) { NOT_ASKED } else { mode() };
    MODE.store(mode, Ordering::Relaxed);
}

/// The program is about to install one, or does what must come before.
pub(crate) fn comes() {
    COMES.store(true, Ordering::Relaxed);
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
        _ if COMES.load(Ordering::Relaxed) => true,
        NOT_ASKED => false,
        before => before != mode(),
    }
}

fn mode() -> i32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }
}

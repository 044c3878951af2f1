//! Whether the process has installed a filter for system calls since we began: opening or removing a
//! file may then be fatal. Inessential work is then skipped, in the program's threads and in ours.

use std::sync::atomic::{AtomicI32, Ordering};

/// The kernel's mode when we began; -1: not read yet.
static MODE: AtomicI32 = AtomicI32::new(-1);

/// Call before any of our code opens a file.
pub(crate) fn note() {
    MODE.store(mode(), Ordering::Relaxed);
}

/// Safe in signal handlers.
pub(crate) fn is_new() -> bool {
    let before = MODE.load(Ordering::Relaxed);
    before != -1 && before != mode()
}

fn mode() -> i32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }
}

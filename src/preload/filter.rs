//! Whether the process has put itself under a filter for system calls since we began: one that opens or
//! removes a file may then be killed for it. What this run does not need is left out then, in the threads of the
//! program and in ours.

use std::sync::atomic::{AtomicI32, Ordering};

/// The kernel's mode when we began; -1: we have not.
static MODE: AtomicI32 = AtomicI32::new(-1);

/// Call before anything of ours opens a file.
pub fn note() {
    MODE.store(mode(), Ordering::Relaxed);
}

/// For signal handlers, too.
pub fn is_new() -> bool {
    let before = MODE.load(Ordering::Relaxed);
    before != -1 && before != mode()
}

fn mode() -> i32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) }
}

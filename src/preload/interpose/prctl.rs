//! `prctl`: an unprivileged program calls it before it installs a filter for system calls. The
//! filter itself may forbid querying whether there is one.

use core::ffi::c_int;

use crate::c_library::PRCTL;
use crate::process::{bounds, bypass};
use crate::{identity, seccomp};

redhook::hook! {
    unsafe fn prctl(
        option: c_int,
        second: usize,
        third: usize,
        fourth: usize,
        fifth: usize
    ) -> c_int => program_prctl {
        let announces = matches!(option, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP);
        if announces && !is_child_in_our_memory() {
            seccomp::comes();
            bounds::FILTER_COMES.until(|| !seccomp::any_at_calls());
        }
        let Some(real) = PRCTL.get() else { return -1 };
        // SAFETY: the real function with the program's arguments.
        unsafe { real(option, second, third, fourth, fifth) }
    }
}

/// Returns whether this is a child between `vfork` and `exec`, whose filter concerns only itself.
/// In a child that has a copy of the memory the library is off. Before CUDA is started the two
/// cannot be told apart: a lost message is better than a killed process.
fn is_child_in_our_memory() -> bool {
    identity::is_foreign() && !bypass::is_switched_off()
}

//! `prctl`: what a program calls before it installs a filter for system calls, unless it may do anything. The filter itself
//! may forbid to ask whether there is one.

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

/// Whether it is a child between `vfork` and `exec`, whose filter is its own. One that has a copy of the memory is off. Before
/// CUDA is started the two cannot be told apart: better to say nothing than to be killed.
fn is_child_in_our_memory() -> bool {
    identity::is_foreign() && !bypass::is_switched_off()
}

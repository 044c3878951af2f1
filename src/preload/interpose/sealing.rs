//! `prctl`: what a program calls before it installs a filter for system calls, unless it may do anything. The filter itself
//! may forbid to ask whether there is one.

use core::ffi::c_int;

use crate::c_library::PRCTL;
use crate::filter;

redhook::hook! {
    unsafe fn prctl(
        option: c_int,
        second: usize,
        third: usize,
        fourth: usize,
        fifth: usize
    ) -> c_int => program_prctl {
        if matches!(option, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP) {
            filter::comes();
        }
        let Some(real) = PRCTL.get() else { return -1 };
        // SAFETY: the real function with the program's arguments.
        unsafe { real(option, second, third, fourth, fifth) }
    }
}

//! `prctl`: what a program calls before it installs a filter for system calls, unless it may do anything. The filter itself
//! may forbid to ask whether there is one.

use core::ffi::c_int;
use std::time::Duration;

use crate::c_library::PRCTL;
use crate::process::{bypass, own_thread};
use crate::{filter, identity};

/// How often we look whether our threads are done with what a filter may forbid: they need microseconds, and a processor.
/// Not for ever: the caller may be a handler that has interrupted one.
const LOOKS: u32 = 1500;
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);

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
            filter::comes();
            let at_calls = (0..LOOKS).take_while(|_| filter::any_at_calls());
            at_calls.for_each(|_| own_thread::sleep(BETWEEN_LOOKS));
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

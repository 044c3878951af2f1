//! The exported symbols that replace the C library's.

use core::ffi::c_int;
use core::mem::zeroed;

use libc::{SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_ERR};

use crate::c_library::{BSD_SIGNAL, SIGACTION, SIGNAL, SSIGNAL, SYSV_SIGNAL, SYSV_SIGNAL_RESERVED};
use crate::interpose::signals::taken;
use crate::interpose::signals::view::{TakenSignal, change};

/// # Safety
///
/// The caller must uphold the requirements of `sigaction`.
pub(super) unsafe fn real(
    number: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(real) = SIGACTION.get() else { return -1 };
    // SAFETY: the real function with the caller's arguments.
    unsafe { real(number, action, old) }
}

redhook::hook! {
    unsafe fn sigaction(
        number: c_int,
        action: *const libc::sigaction,
        old: *mut libc::sigaction
    ) -> c_int => program_sigaction {
        match taken(number) {
            // SAFETY: null, or the program's own structures, as `sigaction` wants them.
            Some(taken) => unsafe { change(taken, number, action.as_ref().copied(), old.as_mut()) },
            // SAFETY: the program's own arguments.
            None => unsafe { real(number, action, old) },
        }
    }
}

/// Defines the other names of `signal`, which the C library has for two functions.
macro_rules! by_other_names {
    ($($name:ident => $ours:ident: $real:ident, $flags:expr;)*) => {$(
        redhook::hook! {
            unsafe fn $name(number: c_int, handler: usize) -> usize => $ours {
                match taken(number) {
                    Some(taken) => set_handler(taken, number, handler, $flags),
                    // SAFETY: the program's own arguments.
                    None => $real.get().map_or(SIG_ERR, |real| unsafe { real(number, handler) }),
                }
            }
        }
    )*};
}

by_other_names! {
    signal => program_signal: SIGNAL, SA_RESTART;
    bsd_signal => program_bsd_signal: BSD_SIGNAL, SA_RESTART;
    ssignal => program_ssignal: SSIGNAL, SA_RESTART;
    sysv_signal => program_sysv_signal: SYSV_SIGNAL, SA_RESETHAND | SA_NODEFER;
    __sysv_signal => program_sysv_signal_2: SYSV_SIGNAL_RESERVED, SA_RESETHAND | SA_NODEFER;
}

/// Sets a handler with these flags, like `signal` and its variants, and returns the previous one.
fn set_handler(taken: &TakenSignal, number: c_int, handler: usize, flags: c_int) -> usize {
    if handler == SIG_ERR {
        // SAFETY: this thread's own errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return SIG_ERR;
    }
    // SAFETY: all-zero is a valid action.
    let (mut action, mut old): (libc::sigaction, libc::sigaction) = unsafe { zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if flags & SA_RESTART != 0 {
        // SAFETY: the set is local. BSD's `signal` blocks the signal while it is handled.
        unsafe { libc::sigaddset(&mut action.sa_mask, number) };
    }
    if change(taken, number, Some(action), Some(&mut old)) == 0 {
        old.sa_sigaction
    } else {
        SIG_ERR
    }
}

//! Ends of a process that run no exit handlers: `_exit` and `_Exit`, by which interpreters and
//! servers leave. What is asked for at exit is said here, then the real function ends the process.
//!
//! redhook serves here: these are libc functions, found behind us once and for all.

use core::ffi::c_int;

use crate::runtime::process;

redhook::hook! {
    unsafe fn _exit(code: c_int) => exit_at_once {
        process::exits();
        // SAFETY: the real function with the program's argument; it does not return.
        unsafe { redhook::real!(_exit)(code) }
    }
}

redhook::hook! {
    unsafe fn _Exit(code: c_int) => exit_at_once_iso {
        process::exits();
        // SAFETY: as above.
        unsafe { redhook::real!(_Exit)(code) }
    }
}

/// Finds the real functions. Later may be too late: a program may leave in a signal handler, where
/// looking for a symbol is not safe.
pub fn prepare() {
    let _ = (redhook::real!(_exit), redhook::real!(_Exit));
}

//! Ends of a process that run no exit handlers: `_exit` and `_Exit`, by which interpreters and
//! servers end. The output requested for the exit is written here, then the real function ends the
//! process.
//!
//! redhook's `hook!` defines the symbols; the real functions come from `c_library`.

use core::ffi::c_int;

use crate::assembly::lifetime;
use crate::c_library::{EXIT_AT_ONCE, EXIT_AT_ONCE_ISO};

redhook::hook! {
    unsafe fn _exit(code: c_int) => exit_at_once {
        lifetime::exits_at_once();
        leave(EXIT_AT_ONCE.get(), code)
    }
}

redhook::hook! {
    unsafe fn _Exit(code: c_int) => exit_at_once_iso {
        lifetime::exits_at_once();
        leave(EXIT_AT_ONCE_ISO.get(), code)
    }
}

fn leave(real: Option<unsafe extern "C" fn(c_int)>, code: c_int) {
    if let Some(real) = real {
        // SAFETY: the real function with the program's argument; it does not return.
        unsafe { real(code) }
    }
    // SAFETY: does what the real function does, if there is none. This must not return.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
}

//! `dlclose`: code that is unloaded makes room for other code at the same addresses, and stacks
//! captured before mean the old one.

use core::ffi::{c_int, c_void};

use crate::record;

redhook::hook! {
    unsafe fn dlclose(handle: *mut c_void) -> c_int => program_dlclose {
        // SAFETY: the real function with the program's argument.
        let code = unsafe { redhook::real!(dlclose)(handle) };
        record::note_unload();
        code
    }
}

//! `dlclose`: other code may be loaded at the addresses of unloaded code, and stacks captured
//! before refer to the old code.

use core::ffi::{c_int, c_void};

use crate::c_library::DLCLOSE;
use crate::record;

redhook::hook! {
    unsafe fn dlclose(handle: *mut c_void) -> c_int => program_dlclose {
        let Some(real) = DLCLOSE.get() else { return -1 };
        // SAFETY: the real function with the program's argument.
        let code = unsafe { real(handle) };
        record::note_unload();
        code
    }
}

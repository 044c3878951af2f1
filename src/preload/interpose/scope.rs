//! The scope of a library that was loaded with its own dependencies.

use core::ffi::{c_char, c_void};
use core::ptr::null_mut;

use crate::c_library::dlsym::real;
use crate::c_library::objects;
use crate::driver::libraries;

/// Returns the function that the caller's own library, or one of its dependencies, defines. Returns
/// null if it defines none, or if the function is this library's.
pub(crate) fn code_in_scope_of(caller: *mut c_void, name: *const c_char) -> *mut c_void {
    let local = if caller.is_null() { null_mut() } else { in_scope_of(caller, name) };
    let counts = !local.is_null() && !libraries::is_ours(local) && objects::is_code(local);
    if counts { local } else { null_mut() }
}

/// Looks up a name in the caller's own library and its dependencies, where a plugin finds a driver
/// that was loaded for it alone. Rare: only if the global scope has no driver.
#[cold]
pub(crate) fn in_scope_of(caller: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: all-zero is a valid Dl_info, and dladdr only fills it in.
    let mut place: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the address is only looked up, not read.
    if unsafe { libc::dladdr(caller, &mut place) } == 0 || place.dli_fname.is_null() {
        return null_mut();
    }
    // SAFETY: a C string of the loader; NOLOAD loads nothing. For the program itself the name is
    // not that of a library, and nothing is found.
    let library = unsafe { libc::dlopen(place.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return null_mut();
    }
    let address = real(library, name);
    // SAFETY: drops the reference that dlopen counted; the caller keeps its library alive.
    unsafe { libc::dlclose(library) };
    address
}

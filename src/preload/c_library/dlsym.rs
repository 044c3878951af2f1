//! The real `dlsym`, behind the one that we export.
//!
//! Every program needs it, even before any constructor: no allocation, no lock.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Null until found.
pub(crate) static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The real `dlsym` with this library as the caller: `RTLD_NEXT` means the libraries after it.
pub(crate) fn real(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let address = find();
    if address.is_null() {
        return null_mut();
    }
    // SAFETY: the address is the C library's dlsym.
    let function: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
        unsafe { core::mem::transmute(address) };
    function(handle, name)
}

/// Its address, or null.
pub(crate) fn find() -> *mut c_void {
    let known = REAL.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];
    for version in VERSIONS {
        // SAFETY: constant C strings; dlvsym is not hooked by us.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            REAL.store(found, Ordering::Relaxed);
            return found;
        }
    }
    null_mut()
}

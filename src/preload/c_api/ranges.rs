//! Which phase a program says it is in (`include/cachealloc.h`).

use core::ffi::{CStr, c_char, c_int};

use crate::record::ranges;

/// The calling thread enters a range of this name. Returns 0, or `EINVAL`.
///
/// # Safety
///
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_range_push(name: *const c_char) -> c_int {
    if name.is_null() {
        return libc::EINVAL;
    }
    // Before so much as its length is looked at.
    if ranges::are_idle() {
        return 0;
    }
    // SAFETY: the caller's promise.
    ranges::push(unsafe { CStr::from_ptr(name) }.to_bytes());
    0
}

/// The calling thread leaves the range that it entered last.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_range_pop() {
    ranges::pop();
}

//! Ranges: the phases that a program announces (`include/cachealloc.h`).

use core::ffi::{CStr, c_char, c_int};

use crate::record::ranges;

/// Enters a range of this name in the calling thread. Returns 0, or `EINVAL`.
///
/// # Safety
///
/// `name` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_range_push(name: *const c_char) -> c_int {
    if name.is_null() {
        return libc::EINVAL;
    }
    // Checked before even the name's length is read.
    if ranges::are_idle() {
        return 0;
    }
    // SAFETY: the caller's promise.
    ranges::push(unsafe { CStr::from_ptr(name) }.to_bytes());
    0
}

/// Leaves the range that the calling thread entered last.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_range_pop() {
    ranges::pop();
}

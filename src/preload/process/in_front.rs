//! Detection of a library that precedes this one and also replaces `dlsym` and driver functions, as
//! libraries that share a GPU do. Only the order is wrong: the calls that it takes do not reach
//! this library, and its limit does not count cached memory.

use core::ffi::{CStr, c_void};

use crate::c_library::{dlsym, objects};
use crate::driver::libraries;
use crate::log;

/// Functions that a library for sharing a GPU replaces.
const TAKEN: [&CStr; 4] =
    [c"cuMemAlloc_v2", c"cuMemGetInfo_v2", c"cuGetProcAddress_v2", c"cuLaunchKernel"];

/// Warns if there is such a library.
pub(crate) fn say() {
    let first = dlsym::first(c"dlsym".as_ptr());
    if first.is_null() || libraries::is_ours(first) || libraries::contain(first) {
        return;
    }
    let Some((begin, end)) = objects::span_of_object(first) else { return };
    let takes = |name: &CStr| (begin..end).contains(&(dlsym::first(name.as_ptr()) as usize));
    if TAKEN.iter().any(|name| takes(name)) {
        log::warn(format_args!(
            "{} is loaded before this library: calls that it intercepts do not reach this library, and \
             its limit does not count cached memory; name this library before it in LD_PRELOAD",
            file_of(first)
        ));
    }
}

fn file_of(address: *const c_void) -> String {
    // SAFETY: all-zero is a valid Dl_info, and dladdr only fills it in.
    let mut place: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the address is only looked up; the name is the loader's C string.
    unsafe {
        if libc::dladdr(address, &mut place) == 0 || place.dli_fname.is_null() {
            return "another library".into();
        }
        CStr::from_ptr(place.dli_fname).to_string_lossy().into_owned()
    }
}

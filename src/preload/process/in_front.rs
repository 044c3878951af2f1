//! A library in front of this one that stands in front of `dlsym` and of the driver, as shares of a GPU do. Nothing of it is wrong,
//! but the order is: what it takes from the program does not come here, and its limit does not count what the cache keeps.

use core::ffi::{CStr, c_void};

use crate::c_library::{dlsym, objects};
use crate::driver::libraries;
use crate::log;

/// What a share of a GPU takes.
const TAKEN: [&CStr; 4] =
    [c"cuMemAlloc_v2", c"cuMemGetInfo_v2", c"cuGetProcAddress_v2", c"cuLaunchKernel"];

/// Says so, if there is one.
pub(crate) fn say() {
    let first = dlsym::first(c"dlsym".as_ptr());
    if first.is_null() || libraries::is_ours(first) || libraries::contain(first) {
        return;
    }
    let Some((begin, end)) = objects::span_of_object(first) else { return };
    let takes = |name: &CStr| (begin..end).contains(&(dlsym::first(name.as_ptr()) as usize));
    if TAKEN.iter().any(|name| takes(name)) {
        log::warn(format_args!(
            "{} stands in front of this library: calls that it takes do not come here, and a limit of its does not \
             count what is cached; name this library before it in LD_PRELOAD",
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

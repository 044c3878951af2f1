//! Which pointer a program gets in place of one of the driver's.

use core::ffi::{c_char, c_void};

use crate::driver::table;
use crate::interpose::trampoline;

/// Our pointer for the driver's `address`, or `None` to hand out the driver's own. `name` is what
/// the program asked for; it serves only to name a function that the list does not know.
pub(crate) fn for_address(address: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    match table::known(address) {
        Some(function) => function.export.map(|export| export as *mut c_void),
        None if in_driver(address) => trampoline::for_unknown(address, name),
        None => None,
    }
}

/// Whether the address lies in the real driver's library: a program may have functions of its own
/// whose names begin like the driver's.
fn in_driver(address: *mut c_void) -> bool {
    // SAFETY: all-zero is a valid Dl_info, and dladdr only fills it in.
    let (mut of_address, mut of_driver): (libc::Dl_info, libc::Dl_info) =
        unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    // SAFETY: the signature is that of the driver's header; both addresses are only looked up, not read.
    let found = unsafe {
        let anchor = table::real::<extern "C" fn(u32) -> u32>(crate::functions::id::cuInit);
        libc::dladdr(address, &mut of_address) != 0
            && libc::dladdr(anchor as *const c_void, &mut of_driver) != 0
    };
    found && of_address.dli_fbase == of_driver.dli_fbase
}

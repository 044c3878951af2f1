//! The choice of the pointer that a program gets in place of one of the driver's.

use core::ffi::{c_char, c_void};

use crate::driver::{libraries, table};
use crate::interpose::{doors, trampoline};

/// Returns the library's pointer for the driver's `address`, or `None` to hand out the driver's
/// own. `name` is the requested name; it serves only to name a function that the list does not
/// know.
pub(crate) fn for_address(address: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    match table::known(address) {
        Some(function) => doors::handed_out(function),
        // Only in the driver: a program may have functions whose names begin like the driver's.
        None if libraries::contain(address) => trampoline::for_unknown(address, name),
        None => None,
    }
}

//! Libraries that the program opens with `RTLD_DEEPBIND`: they and those that come with them
//! prefer the driver's functions, and the C library's `dlsym`, to ours. What such a library submits
//! is not counted: no barrier may be skipped any more, and as nobody knows what of it the host could
//! see, each free waits (`route::ordered` in the core).
//!
//! Note [Why the flag is enough]. A tail jump cannot tell when the library is there, nor whether it
//! ever comes; and whether it will ask for the driver is written nowhere: `dlsym` takes any name. So
//! the call is taken at its word, before it goes on. Wrong is that for a library that has nothing
//! to do with CUDA, in a program that has: its frees then wait as they natively do.
//!
//! In a program without CUDA nothing comes of it but two atomics.

use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use cachealloc_core::order::UnseenCause;

use crate::log;
use crate::runtime::{LEDGER, process};

/// How the names of libraries begin that bind deep in many programs and submit nothing: the driver
/// itself (Julia opens it so), and what oneTBB asks for the shape of the machine.
const HARMLESS: [&[u8]; 2] = [b"libcuda.so", b"libtbbbind"];

/// The first one's name, for the notice.
static FIRST: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static SAID: AtomicBool = AtomicBool::new(false);

/// A library is about to be opened so. Takes no lock of ours: the caller may hold any.
pub fn opens(file: &CStr) {
    let name = file.to_bytes();
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    if HARMLESS.iter().any(|harmless| name.starts_with(harmless)) {
        return;
    }
    if FIRST.load(Ordering::Relaxed).is_null() {
        // SAFETY: a C string. `dlopen` allocates, too; the copy lives for ever.
        FIRST.store(unsafe { libc::strdup(file.as_ptr()) }, Ordering::Release);
    }
    LEDGER.skipping.ends(UnseenCause::BypassingLibrary);
    if process::is_ours() {
        say();
    }
}

/// Says so, once, as soon as CUDA is started.
pub fn say() {
    let first = FIRST.load(Ordering::Acquire);
    if first.is_null() || SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: our own copy of a C string.
    let first = unsafe { CStr::from_ptr(first) }.to_string_lossy();
    log::info(format_args!(
        "{first} is opened with RTLD_DEEPBIND, and its calls may pass us: \
         every free makes a barrier and waits from now on"
    ));
}

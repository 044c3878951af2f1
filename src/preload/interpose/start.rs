//! Code that runs when the library is loaded, in every process that inherits the variables. It runs
//! before any other library's code, which the linker's `initfirst` requests from the loader.

use core::ffi::{c_char, c_int};

use crate::config::environment;
use crate::interpose::references;
use crate::log::stderr;
use crate::{c_library, config};

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = at_start;

/// Runs with the arguments that glibc's loader passes.
extern "C" fn at_start(
    _count: c_int,
    _arguments: *const *const c_char,
    variables: *const *const c_char,
) {
    // SAFETY: the loader's own list.
    unsafe { environment::note(variables) };
    stderr::note();
    // The functions are found now. The first call is often that of a forked child, or of a handler,
    // which must not wait for the loader.
    c_library::find_all();
    references::put_right_at_start();
    config::help_at_start();
}

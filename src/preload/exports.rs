//! The exported symbols, expanded from `functions.csv` by `build.rs`: one `export!` for each row.
//! After its entry code (`interpose::doors`) an export passes its arguments to one hook. The row
//! also decides the code around the hook and before the driver's function.
//!
//! An error passes through `out_of_memory::answered` on its way to the program: only there a call
//! that ran out of memory is reported.
//!
//! A hook is called as `hook(function, arguments.., real)`: the row of the list, the arguments that
//! the row names, with their types, and a closure that calls the real function with all of the
//! program's own arguments.

#![allow(non_snake_case)]

use core::ffi::{c_char, c_void};

use crate::driver::sys::*;
use crate::driver::table;
use crate::functions::{FUNCTIONS, id};
#[allow(unused_imports)]
use crate::hooks::*;
use crate::interpose::doors::export_door;
use crate::ordering::{before_submission, captures, legacy_stream};
use crate::process::bypass;

/// Announces the stream to which the call submits, after the hook has counted the start of the
/// submission and right before the driver's function: this is where a deferred wait is submitted.
macro_rules! before_submit {
    ([]) => {};
    ([argument $stream:ident $per_thread:literal]) => {
        before_submission::before_submit(before_submission::named($stream as usize, $per_thread));
    };
    ([launch_config $config:ident $per_thread:literal]) => {
        // SAFETY: the arguments are the caller's promise.
        let stream = unsafe { before_submission::of_launch($config, $per_thread) };
        before_submission::before_submit(stream);
    };
    ([legacy_stream]) => {
        before_submission::before_submit(before_submission::named(0, false));
    };
    // The operands may be read before the earlier work of the stream is complete, or the stream is
    // unknown.
    ([any_stream]) => {
        before_submission::before_submit(cachealloc_core::order::ANY_STREAM);
    };
}

/// Calls the hook while the library caches. Otherwise the driver's function is called directly,
/// unless the hook itself has work to do then.
macro_rules! while_caching {
    (hook, $real:ident, $hooked:expr) => {
        $hooked
    };
    (real, $real:ident, $hooked:expr) => {
        if bypass::is_caching() { $hooked } else { $real() }
    };
    (flush, $real:ident, $hooked:expr) => {
        if bypass::is_caching() {
            $hooked
        } else {
            before_submission::flush_all();
            $real()
        }
    };
}

/// Calls the hook, with the code around it that the class of the function and its stream require.
macro_rules! around_hook {
    (nothing, $function:ident, $words:expr, $not_caching:ident, $real:ident, $hooked:expr) => {
        while_caching!($not_caching, $real, $hooked)
    };
    (submits, $function:ident, $words:expr, $not_caching:ident, $real:ident, $hooked:expr) => {{
        // The words are in memory only during a capture.
        if captures::maybe() {
            // SAFETY: the arguments are the caller's promise.
            unsafe { capture::submits($function, &$words) };
        }
        let done = while_caching!($not_caching, $real, $hooked);
        // SAFETY: the arguments are the caller's promise.
        unsafe { submitted($function, &$words) };
        done
    }};
    // One load finds that the library caches and records nothing, that no stream captures, and that
    // no failure is open.
    (launches, $function:ident, $words:expr, flush, $real:ident, $hooked:expr) => {{
        if !crate::gate::launches_are_plain() {
            // SAFETY: the arguments are the caller's promise.
            if let Some(done) = unsafe { launch::special($function, &$words) } {
                return code(done);
            }
        }
        let done = $hooked;
        // SAFETY: the arguments are the caller's promise.
        unsafe { submitted($function, &$words) };
        done
    }};
    (
        submits_to_legacy, $function:ident, $words:expr, $not_caching:ident, $real:ident,
        $hooked:expr
    ) => {{
        let done = while_caching!($not_caching, $real, $hooked);
        legacy_stream::note_legacy_work();
        done
    }};
    (records, $function:ident, $words:expr, $not_caching:ident, $real:ident, $hooked:expr) => {
        driver_memory::around($function, &$words, || while_caching!($not_caching, $real, $hooked))
    };
}

/// Looks whether a call that has succeeded repeats one that failed for lack of memory. For calls
/// that allocate, their hooks look, which know the size; for launches, `launch::special`; for
/// copies and fills, nothing does.
macro_rules! succeeded {
    (elsewhere, $function:ident, $words:expr) => {
        Ok(())
    };
    (here, $function:ident, $words:expr) => {{
        out_of_memory::repeated($function, &$words);
        Ok(())
    }};
}

/// Defines the export of one function.
macro_rules! export {
    ($name:ident($($p:ident: $t:ty),*), $words:expr, $hook:path, [$($h:ident)*],
        $around:ident, $stream:tt, $not_caching:ident, $repeats_are_noted:ident) => {
        export_door!($name, id::$name, $name::body);

        mod $name {
            use super::*;

            /// # Safety
            ///
            /// Must be called with the arguments of the driver function of this name.
            pub(super) unsafe extern "C" fn body($($p: $t),*) -> CuCode {
                let real = move || {
                    before_submit!($stream);
                    // SAFETY: the list gives this function the argument list of the driver's
                    // header; the arguments, and what they point to, are the caller's promise.
                    result(unsafe {
                        table::real::<unsafe extern "C" fn($($t),*) -> CuCode>(id::$name)($($p),*)
                    })
                };
                let function = &FUNCTIONS[id::$name];
                let done = around_hook!(
                    $around, function, $words, $not_caching, real, $hook(function, $($h,)* real)
                );
                code(match done {
                    Ok(()) => succeeded!($repeats_are_noted, function, $words),
                    Err(error) => out_of_memory::answered(function, &$words, error),
                })
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

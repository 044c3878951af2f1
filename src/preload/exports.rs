//! The exported symbols, expanded from `functions.csv` by `build.rs`. An export contains no logic:
//! after its door (`interpose::doors`) it passes its arguments to one hook.
//!
//! An error passes through `out_of_memory::answered` on its way to the program: only there a call
//! that ran out of memory is reported.
//!
//! For a function that submits work, the closure first names the stream, after the hook has counted
//! the start of the submission.
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

/// Defines the symbol. `|function, real|` are the names by which `body` calls the hook.
macro_rules! symbol {
    ($name:ident($($p:ident: $t:ty),*), ($($a:ident),*), $words:expr, { $($goes:tt)* }, |$function:ident, $real:ident| $body:expr) => {
        export_door!($name, id::$name, $name::body);

        mod $name {
            use super::*;

            /// # Safety
            ///
            /// Must be called with the arguments of the driver function of this name.
            pub(super) unsafe extern "C" fn body($($p: $t),*) -> CuCode {
                let real = move || {
                    $($goes)*
                    // SAFETY: the list gives this function the argument list of the driver's
                    // header; the arguments, and what they point to, are the caller's promise.
                    result(unsafe {
                        table::real::<unsafe extern "C" fn($($t),*) -> CuCode>(id::$name)($($a),*)
                    })
                };
                let ($function, $real) = (&FUNCTIONS[id::$name], real);
                code(match $body {
                    Ok(()) => Ok(()),
                    Err(error) => out_of_memory::answered($function, &$words, error),
                })
            }
        }
    };
}

macro_rules! export {
    ($name:ident $p:tt, $a:tt, $w:tt, $hook:path, [$($h:ident)*], $goes:tt) => {
        symbol! { $name $p, $a, $w, $goes, |function, real| $hook(function, $($h,)* real) }
    };
    (submits $name:ident $p:tt, $a:tt, $w:tt, $hook:path, [$($h:ident)*], $goes:tt) => {
        symbol! { $name $p, $a, $w, $goes, |function, real| {
            // The words are in memory only during a capture.
            if crate::ordering::captures::maybe() {
                // SAFETY: the arguments are the caller's promise.
                unsafe { capture::submits(function, &$w) };
            }
            let done = $hook(function, $($h,)* real);
            // SAFETY: the arguments are the caller's promise.
            unsafe { submitted(function, &$w) };
            done
        } }
    };
    (launches $name:ident $p:tt, $a:tt, $w:tt, $hook:path, [$($h:ident)*], $goes:tt) => {
        symbol! { $name $p, $a, $w, $goes, |function, real| {
            let seldom = match crate::config::launches_are_plain() {
                true => None,
                // SAFETY: the arguments are the caller's promise.
                false => unsafe { launch::seldom(function, &$w) },
            };
            if let Some(done) = seldom {
                done
            } else {
                let done = $hook(function, $($h,)* real);
                // SAFETY: the arguments are the caller's promise.
                unsafe { submitted(function, &$w) };
                done
            }
        } }
    };
    (submits_to_legacy $name:ident $p:tt, $a:tt, $w:tt, $hook:path, [$($h:ident)*], $goes:tt) => {
        symbol! { $name $p, $a, $w, $goes, |function, real| {
            let done = $hook(function, $($h,)* real);
            crate::ordering::legacy_stream::note_legacy_work();
            done
        } }
    };
    (recorded $name:ident $p:tt, $a:tt, $w:tt, $hook:path, [$($h:ident)*], $goes:tt) => {
        symbol! { $name $p, $a, $w, $goes, |function, real| {
            driver_memory::around(function, &$w, || $hook(function, $($h,)* real))
        } }
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

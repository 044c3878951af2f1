//! The exported symbols, expanded from `functions.csv` by `build.rs`. An export contains no logic: it
//! passes its arguments to one hook.
//!
//! A hook is called as `hook(function, words, real)`: the row of the list, the arguments as
//! machine words, and a closure that calls the real function with the program's own arguments.

#![allow(non_snake_case)]

use crate::driver::sys::{CuCode, EglFrame, Handle64, code, result};
use crate::functions::{FUNCTIONS, id};
#[allow(unused_imports)]
use crate::hooks::*;

macro_rules! export {
    ($name:ident($($p:ident: $t:ty),*), ($($k:ty),*), ($($a:ident),*), [$($w:expr),*], $hook:path) => {
        /// # Safety
        ///
        /// Called with the arguments of the driver function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($p: $t),*) -> CuCode {
            // SAFETY: the table gives this function the argument list of the driver's header; the
            // arguments are the caller's promise.
            let real = move || result(unsafe {
                crate::driver::table::real::<unsafe extern "C" fn($($k),*) -> CuCode>(id::$name)(
                    $($a),*
                )
            });
            code($hook(&FUNCTIONS[id::$name], &[$($w),*], &real))
        }
    };
    (submits $name:ident($($p:ident: $t:ty),*), ($($k:ty),*), ($($a:ident),*), [$($w:expr),*], $hook:path) => {
        /// # Safety
        ///
        /// Called with the arguments of the driver function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($p: $t),*) -> CuCode {
            // SAFETY: the table gives this function the argument list of the driver's header; the
            // arguments are the caller's promise.
            let real = move || result(unsafe {
                crate::driver::table::real::<unsafe extern "C" fn($($k),*) -> CuCode>(id::$name)(
                    $($a),*
                )
            });
            let function = &FUNCTIONS[id::$name];
            // The words are written twice here, so that they are in memory only during a capture.
            if crate::ordering::captures::maybe() {
                // SAFETY: as above.
                unsafe { capture::submits(function, &[$($w),*]) };
            }
            code($hook(function, &[$($w),*], &real))
        }
    };
    (recorded $name:ident($($p:ident: $t:ty),*), ($($k:ty),*), ($($a:ident),*), [$($w:expr),*], $hook:path) => {
        /// # Safety
        ///
        /// Called with the arguments of the driver function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($p: $t),*) -> CuCode {
            // SAFETY: the table gives this function the argument list of the driver's header; the
            // arguments are the caller's promise.
            let real = move || result(unsafe {
                crate::driver::table::real::<unsafe extern "C" fn($($k),*) -> CuCode>(id::$name)(
                    $($a),*
                )
            });
            let (function, words) = (&FUNCTIONS[id::$name], [$($w),*]);
            code(driver_memory::around(function, &words, || $hook(function, &words, &real)))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

//! The list of driver functions, expanded from `functions.csv` by `build.rs`: properties, indices
//! and the exported symbols. An export holds no logic: it hands its arguments to one hook.
//!
//! A hook is called as `hook(function, words, real)`: the row of the table, the arguments as
//! machine words, and a closure that calls the real function with the program's own arguments.

use core::ffi::CStr;

use crate::driver::sys::{EglFrame, Handle64};

/// What a driver function means to us (column `class`; see `functions.csv`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Own,
    Translate,
    Lifecycle,
    Capture,
    Submit,
    Order,
    Sync,
    Record,
    Pass,
}

/// Where a call names a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamAt {
    Nowhere,
    Argument(u8),
    /// In what an argument points to, at an offset in bytes.
    Inside {
        argument: u8,
        offset: u8,
    },
}

/// The address of one of our exports, of whatever signature.
pub type Export = unsafe extern "C" fn();

/// One row of the list.
pub struct Function {
    pub id: usize,
    /// Name in the export table of the driver.
    pub symbol: &'static CStr,
    /// Name under which `cuGetProcAddress` finds it.
    pub base: &'static str,
    /// Stream `NULL` is the calling thread's own default stream.
    pub per_thread: bool,
    pub class: Class,
    /// The stream on which it puts something that a capture could take.
    pub stream: StreamAt,
    /// May fail with out of memory, and a second call after freeing is safe.
    pub oom_retry: bool,
    /// An asynchronous copy that reads or writes host memory.
    pub host_memory: bool,
    /// Ends the life of something that work in flight may use.
    pub teardown: bool,
    /// Our symbol in front of it, if it has a hook.
    pub export: Option<Export>,
}

impl Function {
    /// Whether a call puts work, or an order between works, into the driver (docs/ordering.md 6).
    pub const fn submits(&self) -> bool {
        matches!(self.class, Class::Submit | Class::Order)
    }
}

macro_rules! export_address {
    ($name:ident) => {{
        // SAFETY: both types are thin function pointers; the result is only compared, or handed
        // to a program that calls it with the real signature.
        unsafe { core::mem::transmute::<*const (), Export>(exports::$name as *const ()) }
    }};
}

macro_rules! export {
    ($name:ident($($p:ident: $t:ty),*), ($($k:ty),*), ($($a:ident),*), [$($w:expr),*], $hook:path) => {
        /// # Safety
        ///
        /// Called with the arguments of the driver function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($p: $t),*) -> u32 {
            // SAFETY: the table gives this function the argument list of the driver's header.
            let real = move || unsafe {
                crate::driver::table::real::<unsafe extern "C" fn($($k),*) -> u32>(super::id::$name)(
                    $($a),*
                )
            };
            $hook(&super::FUNCTIONS[super::id::$name], &[$($w),*], &real)
        }
    };
    (submits $name:ident($($p:ident: $t:ty),*), ($($k:ty),*), ($($a:ident),*), [$($w:expr),*], $hook:path) => {
        /// # Safety
        ///
        /// Called with the arguments of the driver function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($p: $t),*) -> u32 {
            // SAFETY: the table gives this function the argument list of the driver's header.
            let real = move || unsafe {
                crate::driver::table::real::<unsafe extern "C" fn($($k),*) -> u32>(super::id::$name)(
                    $($a),*
                )
            };
            let function = &super::FUNCTIONS[super::id::$name];
            // The words are written twice here, so that they lie in memory only while something captures.
            if crate::runtime::captures::maybe() {
                // SAFETY: as above.
                unsafe { capture::submits(function, &[$($w),*]) };
            }
            $hook(function, &[$($w),*], &real)
        }
    };
    (recorded $name:ident($($p:ident: $t:ty),*), ($($k:ty),*), ($($a:ident),*), [$($w:expr),*], $hook:path) => {
        /// # Safety
        ///
        /// Called with the arguments of the driver function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($p: $t),*) -> u32 {
            // SAFETY: the table gives this function the argument list of the driver's header.
            let real = move || unsafe {
                crate::driver::table::real::<unsafe extern "C" fn($($k),*) -> u32>(super::id::$name)(
                    $($a),*
                )
            };
            let (function, words) = (&super::FUNCTIONS[super::id::$name], [$($w),*]);
            foreign::around(function, &words, || $hook(function, &words, &real))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The exported symbols.
#[allow(non_snake_case)]
mod exports {
    use super::{EglFrame, Handle64};
    #[allow(unused_imports)]
    use crate::hooks::*;

    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}

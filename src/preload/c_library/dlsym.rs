//! The `dlsym` functions underlying the one that the library exports.
//!
//! Two are used: the C library's, for the library's own lookups, and the next in the order of
//! loading, to which a lookup of the program is passed. They differ if another library also
//! interposes `dlsym` (overlays, remote displays, shares of a GPU).
//!
//! Every program needs them, even before any constructor runs, so they use no allocation and no
//! lock.

use core::cell::Cell;
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::c_library::dynamic;

type Dlsym = extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`. Null until found.
static LIBC: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The next `dlsym`. Null until found. The exported `dlsym` jumps through it.
pub(crate) static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

thread_local! {
    /// Set while this thread calls another library's `dlsym`.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// Looks up a symbol with the C library's `dlsym` and this library as the caller, so that
/// `RTLD_NEXT` means the libraries after it.
pub(crate) fn real(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    find();
    call(LIBC.load(Ordering::Relaxed), handle, name)
}

/// Returns the first definition that the program itself sees. With this library as the caller,
/// `RTLD_DEFAULT` would begin with its own exports.
pub(crate) fn first(name: *const c_char) -> *mut c_void {
    // SAFETY: the program's own handle; nothing is loaded.
    let program = unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if program.is_null() { program } else { real(program, name) }
}

/// Returns what the program would get without this library, with this library as the caller.
pub(crate) fn next(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let next = find();
    if !has_neighbour() {
        return call(next, handle, name);
    }
    ASKS.with(|asks| {
        let before = asks.replace(true);
        let found = call(next, handle, name);
        asks.set(before);
        found
    })
}

/// Whether another library after this one also interposes the C library's `dlsym`.
pub(crate) fn has_neighbour() -> bool {
    NEXT.load(Ordering::Relaxed) != LIBC.load(Ordering::Relaxed)
}

/// Whether this lookup is made by such a library because this one called it.
pub(crate) fn is_asked_by_us() -> bool {
    has_neighbour() && ASKS.with(Cell::get)
}

fn call(function: *mut c_void, handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if function.is_null() {
        return null_mut();
    }
    // SAFETY: a function of the name `dlsym`, which the program would call without this library.
    let function: Dlsym = unsafe { core::mem::transmute(function) };
    function(handle, name)
}

/// Returns the address of the next `dlsym`, or null.
pub(crate) fn find() -> *mut c_void {
    let known = NEXT.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // Until glibc 2.34 it was in a separate library. `dlvsym` may be another library's, which may
    // look up the C library's with `dlsym`.
    let objects = [c"libc.so.6", c"libdl.so.2"];
    let mut found = objects.iter().map(|object| dynamic::find_in(object, c"dlsym"));
    let Some(libc) = found.find(|found| !found.is_null()) else { return null_mut() };
    LIBC.store(libc, Ordering::Relaxed);
    let next = call(libc, libc::RTLD_NEXT, c"dlsym".as_ptr());
    let next = if next.is_null() { libc } else { next };
    NEXT.store(next, Ordering::Relaxed);
    next
}

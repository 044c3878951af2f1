//! `dup2`, `dup3` and `freopen`: by these a program chooses the file of its messages, and so of the
//! library's. A file that gets descriptor 2 in another way is there by chance (`stderr`).

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use crate::c_library::{DUP2, DUP3, FREOPEN, FREOPEN64, Freopen};
use crate::log::stderr;

redhook::hook! {
    unsafe fn dup2(from: c_int, to: c_int) -> c_int => program_dup2 {
        let Some(real) = DUP2.get() else { return -1 };
        // SAFETY: the real function with the program's arguments.
        has_put(unsafe { real(from, to) })
    }
}

redhook::hook! {
    unsafe fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int => program_dup3 {
        let Some(real) = DUP3.get() else { return -1 };
        // SAFETY: as above.
        has_put(unsafe { real(from, to, flags) })
    }
}

redhook::hook! {
    unsafe fn freopen(
        path: *const c_char,
        mode: *const c_char,
        file: *mut libc::FILE
    ) -> *mut libc::FILE => program_freopen {
        // SAFETY: as above.
        unsafe { reopened(FREOPEN.get(), path, mode, file) }
    }
}

redhook::hook! {
    unsafe fn freopen64(
        path: *const c_char,
        mode: *const c_char,
        file: *mut libc::FILE
    ) -> *mut libc::FILE => program_freopen_64 {
        // SAFETY: as above.
        unsafe { reopened(FREOPEN64.get(), path, mode, file) }
    }
}

/// # Safety
///
/// The caller must uphold the requirements of the C library's `freopen`.
unsafe fn reopened(
    real: Option<Freopen>,
    path: *const c_char,
    mode: *const c_char,
    file: *mut libc::FILE,
) -> *mut libc::FILE {
    let Some(real) = real else { return null_mut() };
    // SAFETY: the real function with the program's arguments.
    let file = unsafe { real(path, mode, file) };
    if !file.is_null() {
        // SAFETY: a file that was opened just now.
        has_put(unsafe { libc::fileno(file) });
    }
    file
}

/// Notes the descriptor at which a call of the program has put a file, and returns it.
fn has_put(descriptor: c_int) -> c_int {
    if descriptor == libc::STDERR_FILENO {
        stderr::is_put();
    }
    descriptor
}

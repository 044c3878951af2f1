//! The functions that a program which knows this library may call by name (`include/cachealloc.h`).

use core::ffi::{CStr, c_char, c_int};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use cachealloc_options::{Record, Word};
use cachealloc_statistics::control::Change;

use crate::driver_memory::limits;
use crate::process::bypass;
use crate::process::lock_timeout::LockWait;
use crate::snapshots::{recording, triggers};
use crate::state::thread;
use crate::{identity, log};

/// Writes a snapshot to this file, or to one named by the option `snapshot` if `path` is null.
/// Returns 0 or an `errno`: `ENOTSUP` if the library is off, as in a child forked after CUDA was
/// started.
///
/// # Safety
///
/// `path` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_snapshot(path: *const c_char) -> c_int {
    if bypass::is_switched_off() || identity::is_foreign() {
        return libc::ENOTSUP;
    }
    // SAFETY: the caller's promise.
    let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes());
    let path = path.map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)));
    match as_hook(move || triggers::to_file(path)) {
        Some(Ok(())) => 0,
        Some(Err(error)) => {
            log::warn(format_args!("cannot write a snapshot: {error}"));
            errno_of(&error)
        }
        None => libc::EIO,
    }
}

/// Sets what is recorded from now on, by the words of the option `record`. Returns 0 or an `errno`.
///
/// # Safety
///
/// `what` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_record(what: *const c_char) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    // SAFETY: the caller's promise.
    let what = if what.is_null() { c"" } else { unsafe { CStr::from_ptr(what) } };
    let Some(record) = what.to_str().ok().and_then(Record::of) else { return libc::EINVAL };
    let change = Change {
        record,
        context: None,
        stacks: None,
        max_entries: None,
        device: Some(None),
        clear: true,
    };
    record_so(change)
}

/// Sets what is recorded, with all parameters of PyTorch's `_record_memory_history`. Returns 0 or
/// an `errno`.
///
/// # Safety
///
/// Each text must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_record_memory_history(
    enabled: *const c_char,
    context: *const c_char,
    stacks: *const c_char,
    max_entries: u64,
    device: c_int,
    clear: c_int,
) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    let word = |text: *const c_char, none| match text.is_null() {
        true => none,
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default(),
    };
    let words = (
        Word::of(word(enabled, "off")),
        Word::of(word(context, "none")),
        Word::of(word(stacks, "all")),
    );
    let (Some(record), Some(context), Some(stacks)) = words else { return libc::EINVAL };
    let device = (device != -1).then_some(device);
    if device.is_some_and(|device| as_hook(|| limits::is_device(device)) != Some(true)) {
        return libc::ENODEV;
    }
    record_so(Change {
        record,
        context: Some(context),
        stacks: Some(stacks),
        max_entries: Some(max_entries),
        device: Some(device),
        clear: clear != 0,
    })
}

fn record_so(change: Change) -> c_int {
    let changed = as_hook(|| recording::change(change, LockWait::Blocking));
    changed.map_or(libc::EIO, |changed| changed.err().unwrap_or(0))
}

/// Returns the version as a C string.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether the library is active.
pub(crate) fn is_on() -> bool {
    bypass::is_caching() && !identity::is_foreign()
}

/// Runs `body` as a hook does: its calls are not the program's, and a hook must not be entered
/// twice. Returns `None` if it panicked.
pub(crate) fn as_hook<T>(body: impl FnOnce() -> T) -> Option<T> {
    thread::with(|thread| {
        let was_inside = thread.inside.replace(true);
        let result = catch_unwind(AssertUnwindSafe(body));
        thread.inside.set(was_inside);
        result.ok()
    })
}

/// Returns the error's `errno`, even if a text was added to the error.
fn errno_of(error: &std::io::Error) -> c_int {
    use std::io::ErrorKind;
    if let Some(number) = error.raw_os_error() {
        return number;
    }
    match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::StorageFull => libc::ENOSPC,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        ErrorKind::ReadOnlyFilesystem => libc::EROFS,
        ErrorKind::NotADirectory => libc::ENOTDIR,
        ErrorKind::IsADirectory => libc::EISDIR,
        ErrorKind::FileTooLarge => libc::EFBIG,
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => libc::EINVAL,
        _ => libc::EIO,
    }
}

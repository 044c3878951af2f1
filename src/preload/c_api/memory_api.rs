//! The functions by which a program controls its memory: release free memory, set a limit, record
//! the use on another stream, and install hooks (`include/cachealloc.h`).

use core::ffi::c_int;

use crate::c_api::api::{as_hook, is_on};
use crate::cache::release;
use crate::cache::{pinned_memory, streams};
use crate::driver_memory::limits;
use crate::memory_hooks;
use crate::memory_hooks::Table;
use crate::state::thread;

/// Releases all free memory to the driver. Returns the bytes, or a negative `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_trim(device: c_int) -> i64 {
    if !is_on() {
        return -i64::from(libc::ENOTSUP);
    }
    let trimmed = as_hook(|| release::trim((device != -1).then_some(device)));
    if let Some(Ok(_)) = trimmed {
        // This is memory of the host, and so it is not counted.
        let _ = as_hook(|| thread::with(pinned_memory::empty));
    }
    trimmed.map_or(-i64::from(libc::EIO), |trimmed| match trimmed {
        Ok(bytes) => bytes as i64,
        Err(errno) => -i64::from(errno),
    })
}

/// Limits what the process may hold of a device from now on; 0 removes the limit. Returns 0 or an
/// `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_set_limit(device: c_int, bytes: u64) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    let known = as_hook(|| limits::set(device, bytes));
    known.map_or(libc::EIO, |known| if known { 0 } else { libc::ENODEV })
}

/// Notes that the block is used on this stream too. Returns 0 or an `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_record_stream(address: u64, stream: usize) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    as_hook(|| streams::note_use(address, stream)).unwrap_or(libc::EIO)
}

/// Installs a hook, which observes the calling thread's calls from now on. Returns 0 or an `errno`.
///
/// # Safety
///
/// `hook` must be null or a table that fulfils the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_hook_push(hook: *const Table) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    // SAFETY: the caller's promise.
    as_hook(|| unsafe { memory_hooks::push(hook) }).unwrap_or(libc::EIO)
}

/// Removes a hook, which no longer observes the calling thread's calls. Returns 0 or an `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_hook_pop(hook: *const Table) -> c_int {
    as_hook(|| memory_hooks::pop(hook)).unwrap_or(libc::EIO)
}

//! What a program may ask about its memory: to return what is free, to keep a limit, to wait for another
//! stream, and to install hooks (`include/cachealloc.h`).

use core::ffi::c_int;

use crate::c_api::api::{as_hook, is_on};
use crate::cache::release;
use crate::cache::{pinned_memory, streams};
use crate::driver_memory::limits;
use crate::memory_hooks;
use crate::memory_hooks::Table;
use crate::state::thread;

/// Returns all free memory to the driver. Bytes, or a negative `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_trim(device: c_int) -> i64 {
    if !is_on() {
        return -i64::from(libc::ENOTSUP);
    }
    let trimmed = as_hook(|| release::trim((device != -1).then_some(device)));
    if let Some(Ok(_)) = trimmed {
        // Of the host, and so not counted.
        let _ = as_hook(|| thread::with(pinned_memory::empty));
    }
    trimmed.map_or(-i64::from(libc::EIO), |trimmed| match trimmed {
        Ok(bytes) => bytes as i64,
        Err(errno) => -i64::from(errno),
    })
}

/// Limits what the process may hold of a device from now on; 0: no limit. Returns 0 or an `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_set_limit(device: c_int, bytes: u64) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    let known = as_hook(|| limits::set(device, bytes));
    known.map_or(libc::EIO, |known| if known { 0 } else { libc::ENODEV })
}

/// The block is used on this stream too. Returns 0 or an `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_record_stream(address: u64, stream: usize) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    as_hook(|| streams::note_use(address, stream)).unwrap_or(libc::EIO)
}

/// This hook observes the calling thread's calls from now on. Returns 0 or an `errno`.
///
/// # Safety
///
/// `hook` is null or a table as the header has it, which holds what the header asks of it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_hook_push(hook: *const Table) -> c_int {
    if !is_on() {
        return libc::ENOTSUP;
    }
    // SAFETY: the caller's promise.
    as_hook(|| unsafe { memory_hooks::push(hook) }).unwrap_or(libc::EIO)
}

/// This hook no longer observes the calling thread's calls. Returns 0 or an `errno`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_hook_pop(hook: *const Table) -> c_int {
    as_hook(|| memory_hooks::pop(hook)).unwrap_or(libc::EIO)
}

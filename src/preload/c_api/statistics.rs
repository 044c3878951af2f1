//! The statistics, for a program that calls these functions by name (`include/cachealloc.h`).

use core::ffi::{CStr, c_char, c_int};
use core::ptr::copy_nonoverlapping;
use std::panic::catch_unwind;

use cachealloc_core::Stats;
use cachealloc_statistics::{Report, keys};

use crate::assembly::{exit_table, reading, report};
use crate::process::bypass;
use crate::process::lock_timeout::LockWait;
use crate::snapshots::{triggers, writer};
use crate::state::contexts;
use crate::state::thread;
use crate::thread_state::with_thread_state_saved;
use crate::{identity, record};

/// Writes one number of a device, by PyTorch's name. Returns 0 or an `errno`.
///
/// # Safety
///
/// `key` must be null or a C string, and `value` null or a place for the answer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_stat(
    device: c_int,
    key: *const c_char,
    value: *mut i64,
) -> c_int {
    if key.is_null() || value.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let key = unsafe { CStr::from_ptr(key) }.to_str().unwrap_or("");
    let found = inside(|| {
        if keys::find(&Stats::default(), key).is_none() {
            return Err(libc::ENOENT);
        }
        let stats = of_device(device).ok_or(libc::ENODEV)?;
        keys::find(&stats, key).ok_or(libc::ENOENT)
    });
    match found {
        Ok(number) => {
            // SAFETY: the caller's promise.
            unsafe { value.write(number) };
            0
        }
        Err(code) => code,
    }
}

/// Writes the whole report as JSON with a terminating zero byte. Returns the bytes that this takes,
/// including the zero, whether or not they fit, or 0 if there is nothing to report.
///
/// # Safety
///
/// `text` must have space for `bytes` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cachealloc_stats(text: *mut c_char, bytes: usize) -> usize {
    let Ok(json) = inside(|| report_json().ok_or(libc::EIO)) else { return 0 };
    if !text.is_null() && bytes > 0 {
        let length = json.len().min(bytes - 1);
        // SAFETY: by the caller's promise; the source is the library's own text, which lies
        // elsewhere.
        unsafe {
            copy_nonoverlapping(json.as_ptr().cast(), text, length);
            text.add(length).write(0);
        }
    }
    json.len() + 1
}

/// Sets every peak of a device to the current value. Device -1 stands for all devices.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_reset_peak_stats(device: c_int) -> c_int {
    for_contexts(device, reading::reset_peaks)
}

/// Resets every total and counter of a device. Device -1 stands for all devices.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cachealloc_reset_accumulated_stats(device: c_int) -> c_int {
    for_contexts(device, |context| {
        if let Some(before) = reading::reset_totals(context) {
            exit_table::note_reset(&before);
        }
    })
}

fn for_contexts(device: c_int, act: fn(&'static contexts::Context)) -> c_int {
    let done = inside(|| {
        let concerned = contexts::all().filter(|context| device == -1 || context.device == device);
        match concerned.map(act).count() {
            0 if device != -1 => Err(libc::ENODEV),
            _ => Ok(()),
        }
    });
    done.err().unwrap_or(0)
}

fn of_device(device: c_int) -> Option<Stats> {
    let contexts = reading::reports(LockWait::Blocking);
    let report = Report { contexts, ..Report::default() };
    report.devices().contains(&device).then(|| report.of_device(device))
}

/// Runs `body` as a call of the library. Its calls are not the program's, and a hook must not be
/// entered twice.
fn inside<T>(body: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    if bypass::is_switched_off() || identity::is_foreign() {
        return Err(libc::ENOTSUP);
    }
    thread::with(|thread| {
        let was_inside = thread.inside.replace(true);
        let result = catch_unwind(core::panic::AssertUnwindSafe(|| with_thread_state_saved(body)));
        thread.inside.set(was_inside);
        result.unwrap_or(Err(libc::EIO))
    })
}

/// Returns the whole report as JSON, for the program.
fn report_json() -> Option<String> {
    // Only recorded stacks need names, for which the program's thread may lack stack space.
    let elsewhere = record::is_on() && writer::runs();
    let json = move || report::json(LockWait::Blocking, elsewhere);
    if elsewhere { writer::run(json, triggers::SILENCE_IN_CALL_MAX) } else { Some(json()) }
}

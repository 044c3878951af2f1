//! The driver's log: passes every error that a call returns to the registered functions
//! (`cuLogsRegisterCallback`), except "not ready".

use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{CODE_NAMES, Code, LogCallback};

static CALLBACKS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy)]
struct Registered {
    handle: u64,
    callback: LogCallback,
    data: u64,
}

/// Registers a function and returns its handle.
pub fn register(callback: LogCallback, data: u64) -> u64 {
    let mut all = lock();
    let handle = all.iter().map(|known| known.handle).max().unwrap_or(0) + 1;
    all.push(Registered { handle, callback, data });
    ANY.store(true, Ordering::Release);
    handle
}

/// Removes a function. Returns `false` if the handle is unknown.
pub fn unregister(handle: u64) -> bool {
    let mut all = lock();
    let before = all.len();
    all.retain(|known| known.handle != handle);
    all.len() != before
}

/// Logs the error of a call. Holds no lock, because the program may call the driver.
pub fn note(name: &str, code: Code) {
    if !ANY.load(Ordering::Acquire) || code == Code::NOT_READY {
        return;
    }
    let known = CODE_NAMES.iter().find(|(number, _)| *number == code.0);
    let known = known.map_or("unknown", |(_, name)| name.trim_end_matches('\0'));
    let text = format!("Returning {} ({known}) from {name}", code.0);
    let text = CString::new(text).expect("names without zeros");
    for Registered { callback, data, .. } in lock().clone() {
        // SAFETY: the program's function, with the signature of the driver's header.
        unsafe { callback(data, ERROR, text.as_ptr().cast(), text.as_bytes().len()) };
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Registered>> {
    CALLBACKS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// `CU_LOG_LEVEL_ERROR`.
const ERROR: u32 = 0;

//! The driver's log of every error that a call returns, except "not ready": keeps the newest lines,
//! and passes each to the registered functions (`cuLogsRegisterCallback`).

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Mutex;

use crate::abi::{CODE_NAMES, Code, LogCallback};

static CALLBACKS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
static LINES: Mutex<Lines> = Mutex::new(Lines { first: 0, kept: VecDeque::new() });

/// The newest lines.
struct Lines {
    /// Number of the oldest line that is kept.
    first: u32,
    kept: VecDeque<String>,
}

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
    if code == Code::NOT_READY {
        return;
    }
    let known = CODE_NAMES.iter().find(|(number, _)| *number == code.0);
    let known = known.map_or("unknown", |(_, name)| name.trim_end_matches('\0'));
    let text = format!("Returning {} ({known}) from {name}", code.0);
    keep(&text);
    let text = CString::new(text).expect("names without zeros");
    for Registered { callback, data, .. } in lock().clone() {
        // SAFETY: the program's function, with the signature of the driver's header.
        unsafe { callback(data, ERROR, text.as_ptr().cast(), text.as_bytes().len()) };
    }
}

fn keep(text: &str) {
    let mut lines = lock_lines();
    lines.kept.push_back(format!("{text}\n"));
    if lines.kept.len() > LINES_MAX {
        lines.kept.pop_front();
        lines.first += 1;
    }
}

/// Number of the next line.
pub fn end() -> u32 {
    let lines = lock_lines();
    lines.first + lines.kept.len() as u32
}

/// Returns the lines with this number or a greater one.
pub fn since(number: u32) -> String {
    let lines = lock_lines();
    let passed = number.saturating_sub(lines.first) as usize;
    lines.kept.iter().skip(passed).map(String::as_str).collect()
}

fn lock_lines() -> std::sync::MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Registered>> {
    CALLBACKS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// `CU_LOG_LEVEL_ERROR`.
const ERROR: u32 = 0;
const LINES_MAX: usize = 100;

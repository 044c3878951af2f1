//! A call of the program has failed for lack of memory: what the user reads before the program sees the
//! error, an entry of the history, and a snapshot. Every hook's answer leads here (`hooks/out_of_memory.rs`),
//! whatever was asked for, and only a failed call pays for it.
//!
//! Programs fail on purpose: they ask for less until they get it, or free what they cached and ask again.
//! So a failure that the thread overcomes is marked (`noted`), and the first reports are followed by one
//! that is kept for the end of the process (`told`).

pub(crate) mod noted;
mod situation;
pub(crate) mod told;

use std::sync::atomic::Ordering;

use cachealloc_history::{OomKind, OomPlace, OomRequest};

use crate::contexts::lookup;
use crate::driver::api;
use crate::driver_memory::table;
use crate::record::capture;
use crate::snapshots::triggers;
use crate::state::thread::Thread;
use crate::{process, record, seccomp};
use noted::Failure;

/// What the call asked for, as its arguments say.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// As the driver's look-up knows it.
    pub function: &'static str,
    pub kind: OomKind,
    pub bytes: Option<u64>,
    /// If it is not the current context's.
    pub device: Option<i32>,
}

/// The largest number that viewers represent exactly: a program may request anything.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// This request has failed. Call without any lock of ours.
#[cold]
pub(crate) fn happened(thread: &Thread, request: Request) {
    let Request { function, kind, bytes, device } = request;
    let context = lookup::current().ok();
    let current = || context.map(|context| context.device).or_else(|| api::ctx_get_device().ok());
    let device = device.or_else(current).unwrap_or(0);
    if let Some(context) = context.filter(|_| kind.place() == OomPlace::Device) {
        context.ooms_count.fetch_add(1, Ordering::Relaxed);
    }
    let stack = capture::of_failure();
    let request = OomRequest { function, kind, bytes, stack };
    let memory = situation::device_memory(device);
    let free_bytes = memory.map_or(0, |memory| memory.free_bytes);
    let time_ns = table::refused(device, bytes.unwrap_or(0).min(EXACT_MAX), free_bytes, stack);
    let number = noted::note(Failure::new(request, device, thread.number() as u32, time_ns));
    if seccomp::silences() {
        return;
    }
    process::watch_end();
    let goes_on = told::happened(number, || situation::of(device, request, memory));
    if record::is_on() {
        triggers::start();
        triggers::on_oom(goes_on);
    }
}

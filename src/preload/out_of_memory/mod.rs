//! Handles a call of the program that has failed for lack of memory: a report that the user reads
//! before the program sees the error, an entry of the history, and a snapshot. The result of every
//! hook passes here (`hooks/out_of_memory.rs`), whatever was requested, and only a failed call has
//! extra costs.
//!
//! Programs fail on purpose: they ask for less until they get it, or free what they cached and ask
//! again. A failure that the thread overcomes is therefore marked (`noted`), and after the first
//! reports one is kept for the end of the process (`told`).

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

/// Request of the call, according to its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Name of the function in the driver's lookup.
    pub function: &'static str,
    pub kind: OomKind,
    pub bytes: Option<u64>,
    /// Device of the request, if it is not the current context's.
    pub device: Option<i32>,
    /// Tells calls of the function apart that name no size.
    pub call: u64,
}

/// Largest number that viewers represent exactly: a program may request anything.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// Handles a request that has failed. The caller must hold no lock of the library.
#[cold]
pub(crate) fn happened(thread: &Thread, request: Request) {
    let Request { function, kind, bytes, device, call } = request;
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
    let thread = thread.number() as u32;
    let failure = Failure { request, call, device, thread, time_ns, is_overcome: false };
    let number = noted::note(failure);
    if seccomp::silences() {
        return;
    }
    process::watch_end();
    let goes_on =
        told::happened(number, &failure, memory, || situation::of(device, request, memory));
    if record::is_on() {
        triggers::start();
        triggers::on_oom(goes_on);
    }
}

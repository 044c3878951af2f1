//! Prints failures: the first ones in full, the last one in full at the end of the process if it
//! was not overcome, and one line for all the others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_history::{
    OomReport, OomRequest, SITES_DESCRIBED_MAX, oom_again, oom_report, oom_title,
};
use cachealloc_text::{bytes, plural};

use crate::heap;
use crate::lock::lock;
use crate::log;
use crate::out_of_memory::noted;
use crate::out_of_memory::noted::{Counts, Failure, Success};
use crate::out_of_memory::situation::DeviceMemory;
use crate::process::bounds;
use crate::process::bounds::Budget;
use crate::snapshots::{contents, writer};
use crate::state::thread::Thread;
use crate::thread_state::with_thread_state_saved;

/// Number of failures reported immediately. One more is kept for the end: a program that first
/// fails on purpose may fail for real then.
const AT_ONCE: u64 = 2;
/// Longest wait for a writer without a heartbeat.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Last failure that was not reported, with what held the memory.
static KEPT: Mutex<Option<(u64, Box<OomReport>)>> = Mutex::new(None);
/// Time spent on finding out what holds the memory, which takes longer the more the program holds.
static LOOKS: Budget = Budget::new(&bounds::LOOKS_AT_FAILURES);
/// Number of failures reported in full.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Handles a failure. `look` finds out what holds the memory. Returns `false` if the writer makes
/// no progress.
pub(super) fn happened(
    number: u64,
    failure: &Failure,
    memory: Option<DeviceMemory>,
    look: impl FnOnce() -> OomReport,
) -> bool {
    if !log::warns() || LOOKS.left().is_spent() {
        return true;
    }
    if !host_has_room() {
        let what = "cannot report the holders of device memory: the host is out of memory";
        log::warn(format_args!("out of memory: {what}"));
        return true;
    }
    if number < AT_ONCE {
        TOLD.fetch_add(1, Ordering::Relaxed);
        // A program that frees its own cache asks once more before it gives up.
        let report = match noted::repeats_the_last(number, failure) {
            true => Report::Again(failure.request, failure.device, memory),
            false => Report::Full(Box::new(LOOKS.spend(look))),
        };
        let text = move || report.text();
        let text = match writer::runs() {
            true => writer::run(text, SILENCE_MAX),
            false => Some(with_thread_state_saved(text)),
        };
        text.iter().for_each(|text| log::raw(text.as_bytes()));
        return text.is_some();
    }
    let report = Box::new(LOOKS.spend(look));
    *lock(&KEPT) = Some((number, report));
    true
}

/// Whether the program's heap has enough memory for a report. Without it, the library's allocations
/// would end the process.
fn host_has_room() -> bool {
    if heap::is_short() {
        return false;
    }
    // SAFETY: a block of the C library, freed immediately.
    unsafe {
        let block = libc::malloc(ROOM_BYTES);
        libc::free(block);
        !block.is_null()
    }
}

/// Memory for the sites and names of a large program.
const ROOM_BYTES: usize = 16 << 20;

/// Notes that a call of this function by the thread has succeeded. Prints that if it overcomes a
/// reported failure.
pub(crate) fn succeeded(thread: &Thread, function: &str, success: Success) {
    let overcome = noted::succeeded(thread, function, success);
    let Some((_, failure)) = overcome.filter(|(number, _)| *number < AT_ONCE) else { return };
    let then = match success {
        Success::Bytes(got) => format!(
            "failed for {}, but the same thread has now received {}",
            bytes(failure.request.bytes.unwrap_or(0)),
            bytes(got)
        ),
        Success::Call(_) => "failed, but the same call of the same thread has now succeeded".into(),
    };
    log::warn(format_args!("recovered: {function} {then}"));
}

/// Prints the last failure when the process ends, if it was neither reported nor overcome, and the
/// number of failures.
pub(crate) fn at_end() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let Counts { all, overcome } = noted::counts();
    if all == 0 || !log::warns() || IS_OVER.swap(true, Ordering::Relaxed) {
        return;
    }
    let kept = lock(&KEPT).take().filter(|(number, _)| noted::standing(*number).is_some());
    if let Some((_, report)) = kept {
        TOLD.fetch_add(1, Ordering::Relaxed);
        log::raw(full(&report).as_bytes());
    }
    let told = TOLD.load(Ordering::Relaxed);
    if all > told {
        let last = noted::last().map(|Failure { request, device, .. }| {
            format!(
                "; the last that was not recovered: {}",
                oom_title(device.max(0) as u32, &request)
            )
        });
        log::warn(format_args!(
            "{} failed for lack of memory, {overcome} of them recovered by a retry or a smaller request{}",
            plural(all, "call"),
            last.unwrap_or_default()
        ));
    }
}

/// Text to print for a failure.
enum Report {
    Full(Box<OomReport>),
    /// A repeated request: what holds the memory has been printed.
    Again(OomRequest, i32, Option<DeviceMemory>),
}

impl Report {
    fn text(&self) -> String {
        match self {
            Report::Full(report) => full(report),
            Report::Again(request, device, memory) => {
                let free_bytes = memory.map(|memory| memory.free_bytes);
                let device = (*device).max(0) as u32;
                contents::with_names([request.stack], |names| {
                    oom_again(device, request, free_bytes, names)
                })
            }
        }
    }
}

fn full(report: &OomReport) -> String {
    let asked = [report.request.stack];
    let shown = report.sites.iter().take(SITES_DESCRIBED_MAX).map(|site| site.stack);
    contents::with_names(asked.into_iter().chain(shown), |names| oom_report(report, names))
}

//! The scavenger: a thread of the library. Every second it checks for memory that is idle or in
//! excess (`idle.rs`). It releases what another process requests (`cachealloc trim`) or runs out of
//! (`reclaim`), and asks the driver for the values that a breakdown needs (`measured`).
//!
//! It starts with the first such request, or when the process has reserved enough to be worth a
//! thread, and sleeps without waking while there is less. Only a miss, which asks the driver
//! anyway, checks whether it sleeps; hits and frees do not. Time is counted in passes: a stopped
//! process or a suspended machine has not left its memory unused.
//!
//! Before the process ends, it leaves the driver or does not enter it any more.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::panic::catch_unwind;
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_options::{IdleRelease, Strategy};
use cachealloc_statistics::{Measures, Trims};

use crate::cache::release::left_segments;
use crate::clock::Instant;
use crate::driver::table;
use crate::driver_memory::measured;
use crate::functions::id;
use crate::graphs::pool_life;
use crate::lock::lock;
use crate::ordering::captures;
use crate::process::bounds;
use crate::process::bypass;
use crate::process::library_thread;
use crate::process::library_thread::Body;
use crate::process::watchdog;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::trim::{idle, reclaim};
use crate::{config, identity, log, seccomp};

/// Interval of passes: a second in the options is one pass.
const PASS_EVERY: Duration = Duration::from_secs(1);
/// A process that holds less than this takes too little from other processes to matter.
const WORTH_BYTES: u64 = 64 << 20;

/// Not started.
const NONE: u8 = 0;
/// It runs, or will never start.
const DECIDED: u8 = 1;
/// It sleeps until more is reserved.
const ASLEEP: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NONE);
static RUNS: AtomicBool = AtomicBool::new(false);
static TRIMS_ASKED: AtomicU32 = AtomicU32::new(0);
static TRIMS_DONE: AtomicU32 = AtomicU32::new(0);
static MEASURES_ASKED: AtomicU32 = AtomicU32::new(0);
static MEASURES_DONE: AtomicU32 = AtomicU32::new(0);
static TRIMMED_BYTES: AtomicU64 = AtomicU64::new(0);
/// First pause, while work of the program has to end first; each pause doubles it.
const TRIM_POLL_FIRST: Duration = Duration::from_millis(2);
const MEASURE_LOOK: Duration = Duration::from_micros(200);
/// Pause while something captures.
const MEASURE_AGAIN: Duration = Duration::from_millis(20);
/// The word that the thread sleeps on.
static DOORBELL: AtomicU32 = AtomicU32::new(0);
static IN_PASS: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Notes that a miss was served. The caller must hold no lock of the library: a new thread needs
/// the loader's lock, whose owner may wait for the library's in the constructor of a library that
/// allocates.
#[inline]
pub(crate) fn cache_grew() {
    if STATE.load(Ordering::SeqCst) != DECIDED {
        begin_or_wake();
    }
}

/// Returns whether the process is ending.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

/// Requests that memory free now is released as soon as all work with it has completed. Never
/// waits.
pub(crate) fn trim(device: Option<i32>) -> Result<(), i32> {
    if !table::has(id::cuMemFreeAsync) {
        return Err(libc::ENOTSUP); // only a free that waits could return it
    }
    contexts::all()
        .filter(|context| device.is_none_or(|device| context.device == device))
        .for_each(|context| context.idle.want_trim());
    TRIMS_ASKED.fetch_add(1, Ordering::SeqCst);
    go()
}

/// Requests that the driver is asked for the values a breakdown needs. Never waits.
pub(crate) fn measure() -> Result<(), i32> {
    MEASURES_ASKED.fetch_add(1, Ordering::SeqCst);
    go()
}

/// Requests the same values as `measure`, and waits for them no longer than this; not at all during
/// a capture. Only where the thread runs: the host may be without memory for another.
pub(crate) fn measure_within(wait_max: Duration) {
    let runs = RUNS.load(Ordering::SeqCst) && !is_stopped();
    if !runs || captures::any() || measure().is_err() {
        return;
    }
    let (begun, asked) = (Instant::now(), measures().asked_count);
    while (measures().done_count.wrapping_sub(asked) as i32) < 0 && begun.elapsed() < wait_max {
        watchdog::heartbeat();
        library_thread::sleep(MEASURE_LOOK);
    }
}

/// Returns how many measurements were requested and done.
pub(crate) fn measures() -> Measures {
    let done_count = MEASURES_DONE.load(Ordering::SeqCst);
    Measures { asked_count: MEASURES_ASKED.load(Ordering::SeqCst), done_count }
}

/// Wakes the thread, and starts it first if necessary.
pub(super) fn go() -> Result<(), i32> {
    let new = STATE.compare_exchange(NONE, DECIDED, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if new || !RUNS.load(Ordering::SeqCst) {
        begin();
    }
    wake();
    if RUNS.load(Ordering::SeqCst) { Ok(()) } else { Err(libc::EAGAIN) }
}

/// Returns how many trims were requested and done, and their bytes.
pub(crate) fn trims() -> Trims {
    // In this order: whatever is done was requested before.
    let done_count = TRIMS_DONE.load(Ordering::SeqCst);
    let bytes = TRIMMED_BYTES.load(Ordering::SeqCst);
    Trims { asked_count: TRIMS_ASKED.load(Ordering::SeqCst), done_count, bytes }
}

fn wake() {
    DOORBELL.fetch_add(1, Ordering::Release);
    library_thread::wake(&DOORBELL);
}

#[cold]
fn begin_or_wake() {
    let wanted = is_wanted();
    if wanted && !is_worth_it() {
        return;
    }
    match STATE.compare_exchange(NONE, DECIDED, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) if wanted => begin(),
        Err(ASLEEP) => wake(),
        _ => {}
    }
}

fn begin() {
    // A new thread takes system calls that a filter may forbid.
    if seccomp::silences() || RUNS.swap(true, Ordering::SeqCst) {
        return;
    }
    // Registered after the driver's handler, so it runs before that.
    // SAFETY: the function lives as long as the library, which is never unloaded (it is preloaded).
    unsafe { libc::atexit(stop) };
    if !library_thread::start(&Body { begin: || (), go_on: work }) {
        RUNS.store(false, Ordering::SeqCst);
        log::info(format_args!("cannot start the thread that releases idle memory"));
    }
}

/// Returns whether other processes get the memory that is free here.
pub(super) fn may_give() -> bool {
    bypass::is_caching() && is_wanted() && table::has(id::cuMemFreeAsync)
}

/// Returns whether idle or excess memory is released at all: not with chunks, which are reserved in
/// order to be kept.
fn is_wanted() -> bool {
    let config = config::get();
    worth_bytes().is_some() && config.caches() && config.strategy == Strategy::AutoGrowth
}

/// Reserved bytes from which some may have to be released, or `None` if nothing ever has.
fn worth_bytes() -> Option<u64> {
    let config = config::get();
    let idle = (config.idle_release != IdleRelease::Never).then_some(WORTH_BYTES);
    let excess =
        config.policy.free_bytes_max.map(|free_bytes_max| free_bytes_max.saturating_add(1));
    idle.into_iter().chain(excess).min()
}

fn is_worth_it() -> bool {
    let of = |context: &Context| {
        let left_bytes = match rule_holds(Rule::LeftIsReleased) {
            true => left_segments::bytes(context),
            false => 0,
        };
        left_bytes + lock(&context.allocator).reserved_bytes()
    };
    let reserved = contexts::all().map(of).sum::<u64>();
    worth_bytes().is_some_and(|bytes| reserved >= bytes) || (pace().is_some() && reserved > 0)
}

fn work() {
    let mut trim_poll = TRIM_POLL_FIRST;
    loop {
        let rung = DOORBELL.load(Ordering::Acquire);
        let asked = TRIMS_ASKED.load(Ordering::SeqCst);
        let measures = measures();
        if is_stopped() || !bypass::is_caching() {
            library_thread::wait(&DOORBELL, rung, None);
        } else if reclaim::are_wanted() {
            in_the_driver(|| {
                reclaim::release_next();
                true
            });
        } else if measures.asked_count != measures.done_count {
            // Leaves a capture alone, as a pass does.
            if in_the_driver(|| !captures::any() && measured::ask()) {
                MEASURES_DONE.store(measures.asked_count, Ordering::SeqCst);
            } else {
                library_thread::wait(&DOORBELL, rung, Some(MEASURE_AGAIN));
            }
        } else if asked != TRIMS_DONE.load(Ordering::SeqCst) {
            if in_the_driver(|| contexts::all().filter(|context| !trimmed(context)).count() == 0) {
                TRIMS_DONE.store(asked, Ordering::SeqCst);
                trim_poll = TRIM_POLL_FIRST;
            } else {
                library_thread::wait(&DOORBELL, rung, Some(trim_poll));
                trim_poll = (2 * trim_poll).min(PASS_EVERY);
            }
        } else if !is_wanted() {
            library_thread::wait(&DOORBELL, rung, None);
        } else if is_worth_it() {
            library_thread::wait(&DOORBELL, rung, Some(pace().unwrap_or(PASS_EVERY)));
            in_the_driver(|| {
                contexts::all().for_each(idle::pass);
                true
            });
        } else {
            STATE.store(ASLEEP, Ordering::SeqCst);
            // A miss that grew the cache before this store did not wake this thread.
            if !is_worth_it() {
                library_thread::wait(&DOORBELL, rung, None);
            }
            STATE.store(DECIDED, Ordering::SeqCst);
        }
    }
}

/// Returns whether the context has released what was requested.
fn trimmed(context: &'static Context) -> bool {
    let trim = idle::trim(context);
    TRIMMED_BYTES.fetch_add(trim.bytes, Ordering::SeqCst);
    trim.is_done
}

/// Runs passes, unless the process is ending.
fn in_the_driver(passes: impl Fn() -> bool + std::panic::RefUnwindSafe) -> bool {
    IN_PASS.store(true, Ordering::SeqCst);
    let mut answer = false;
    if !is_stopped() && bypass::is_caching() {
        let passes = || {
            pool_life::reap();
            passes()
        };
        match catch_unwind(passes) {
            Ok(done) => answer = done,
            Err(_) => bypass::begin(format_args!("releasing idle memory panicked")),
        }
    }
    IN_PASS.store(false, Ordering::SeqCst);
    answer
}

extern "C" fn stop() {
    if !identity::is_ours() || bypass::is_switched_off() || !rule_holds(Rule::ScavengerStopsAtExit)
    {
        return;
    }
    STOPPED.store(true, Ordering::SeqCst);
    bounds::PASS_AT_EXIT.until(|| !IN_PASS.load(Ordering::SeqCst));
}

/// Interval of passes in test builds only; with it, any memory is worth a pass.
#[cfg(feature = "break-rules")]
fn pace() -> Option<Duration> {
    static PACE: std::sync::OnceLock<Option<Duration>> = std::sync::OnceLock::new();
    *PACE.get_or_init(|| {
        let text = std::env::var("CACHEALLOC_PASS_MS").ok()?;
        Some(Duration::from_millis(text.parse().ok()?))
    })
}

#[cfg(not(feature = "break-rules"))]
fn pace() -> Option<Duration> {
    None
}

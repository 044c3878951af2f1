//! Waits until the driver has delivered the destroy notices of all graphs destroyed so far.
//!
//! If nothing of a graph was launched, the driver reports its end at once. Otherwise a thread of
//! the driver does, 5 ms later, for several graphs in the order they ended, and never for one that
//! runs (measured). So this destroys two empty graphs, of which one was launched: when the driver
//! reports these, it has reported all before them, each kind in a separate order. None of these
//! calls waits for work, even if an earlier launch does not advance (measured).

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::{STREAM_NON_BLOCKING, StreamHandle};
use crate::driver::{api, graphs};
use crate::lock::lock;
use crate::ordering::{pending, real_frees};
use crate::process::bounds;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::under_way::Waiter;
use crate::statistics::waits;
use crate::statistics::waits::Wait;

/// Number of graphs that were destroyed, and of those whose notices were awaited.
static ENDED: AtomicU64 = AtomicU64::new(0);
static AWAITED: AtomicU64 = AtomicU64::new(0);
/// Whether notices were ever awaited, and how often the program has learned since then that work is
/// complete: perhaps the last launch of a graph that was destroyed while it ran.
static COUNTS: AtomicBool = AtomicBool::new(false);
static LEARNED: AtomicU64 = AtomicU64::new(0);
/// Number of pairs of the library's own graphs that were made, and the numbers of the last ones
/// reported.
static MADE: AtomicU64 = AtomicU64::new(0);
static REPORTED_LAUNCHED: AtomicU64 = AtomicU64::new(0);
static REPORTED_OTHERS: AtomicU64 = AtomicU64::new(0);

/// State of the frees of a context when notices were last awaited there, by the context's id.
static PASSED: Mutex<BTreeMap<u64, Passed>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Behind {
    /// Number of the last barrier or wait for the context.
    barrier: u64,
    /// Number of plain frees without a barrier (mode `relaxed`).
    plain_frees: u64,
    learned: u64,
}

#[derive(Clone, Copy, Default)]
struct Passed {
    /// What may have shown the program that a graph's launch is complete.
    behind: Behind,
    ended: u64,
    /// Number of graphs that had ended before a barrier after which notices were awaited: none of
    /// them still runs.
    over: u64,
}

/// Notes that a graph or an executable that may keep memory was destroyed.
pub(crate) fn graph_ended() {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Notes that a wait or a query of the program has returned that work is complete.
#[inline]
pub(crate) fn work_is_over() {
    if COUNTS.load(Ordering::Relaxed) {
        LEARNED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for the notices for a limited time, and for no work except what a free would have waited
/// for on the plain driver. Does so only if a graph has ended since, and `keeps_memory` returns
/// that one may keep memory. Plain frees without a barrier were waited for before.
pub(crate) fn pass(context: &Context, waiter: Waiter, keeps_memory: impl FnOnce() -> bool) {
    let ended = ENDED.load(Ordering::Relaxed);
    let behind = Behind {
        barrier: context.covers.pending_barriers.passed(),
        plain_frees: context.stream_frees.plain_frees_count.load(Ordering::Acquire),
        learned: LEARNED.load(Ordering::Relaxed),
    };
    let before = lock(&PASSED).get(&context.id).copied().unwrap_or_default();
    let awaited = AWAITED.load(Ordering::Relaxed);
    let free_came = Behind { learned: before.behind.learned, ..behind } != before.behind;
    let may_be_over =
        behind != before.behind && before.over < awaited && rule_holds(Rule::GraphEndsAfterFrees);
    let due = awaited < ended || may_be_over;
    if !due || !rule_holds(Rule::GraphEndsAreAwaited) || !keeps_memory() {
        return;
    }
    // The driver would block until that free returns. A later request waits for the notices.
    if real_frees::any(context) && rule_holds(Rule::FenceAvoidsRealFree) {
        bounds::REPORTS_WITHOUT_MEMORY.until(|| false);
        return;
    }
    // From now on: what the program learns while this waits may come too late for it.
    COUNTS.store(true, Ordering::SeqCst);
    let reached = waits::timed(Wait::Notes, || await_notes(context, waiter));
    AWAITED.fetch_max(ended, Ordering::Relaxed);
    let over = if free_came && reached { before.ended } else { before.over };
    let behind = if reached { behind } else { before.behind };
    let mut passed = lock(&PASSED);
    passed.retain(|id, _| contexts::find(*id).is_some());
    passed.insert(context.id, Passed { behind, ended, over });
}

/// Returns `false` if the last free has not returned yet, and perhaps will not before this request
/// does. Then its work is not waited for.
fn await_notes(context: &Context, waiter: Waiter) -> bool {
    // A launch that a free has waited for on the plain driver has completed, and the end of its
    // graph was reported.
    let barrier = context.last_barrier.newest().filter(|event| !event.is_dead());
    let reached = barrier.is_none_or(|event| {
        let has_returned = context.frees_in_progress.load(Ordering::Acquire) == 0;
        let waited = has_returned && pending::may_wait_for(Some(&event), waiter);
        let reach = || if waited { event.synchronize() } else { event.query() };
        api::relaxed(reach).is_ok()
    });
    let plain_free = context.stream_frees.last_plain_free();
    let is_over = plain_free.is_none_or(|free| api::relaxed(|| free.event.query()).is_ok());
    let pass = || {
        let stream = api::stream_create(STREAM_NON_BLOCKING)?;
        let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        let both = rule_holds(Rule::GraphEndsOfBothKinds);
        let others =
            if both { graphs::destroy_empty(number as usize, is_reported) } else { Ok(()) };
        let launched = others
            .and_then(|()| graphs::launch_empty(stream, number as usize, launched_is_reported));
        if launched.is_ok() {
            wait_for(number, stream, both);
        }
        let _ = api::stream_destroy(stream);
        launched
    };
    if api::relaxed(|| context.enter(pass)).is_err() {
        // The driver has no memory even for that, and nothing shows when its thread has reported.
        bounds::REPORTS_WITHOUT_MEMORY.until(|| false);
    }
    reached && is_over
}

/// Waits for the report of a launched graph and, with `both`, for that of a graph that was not
/// launched.
fn wait_for(number: u64, stream: StreamHandle, both: bool) {
    let reported = |last: &AtomicU64| last.load(Ordering::Acquire) >= number;
    let others = || !both || reported(&REPORTED_OTHERS);
    bounds::REPORTS_OF_GRAPHS.until(|| {
        // The query makes the driver notice that the launch has completed.
        let _ = api::stream_query(stream);
        reported(&REPORTED_LAUNCHED) && others()
    });
}

/// Called by the driver, perhaps in a separate thread.
extern "C" fn launched_is_reported(number: *mut c_void) {
    REPORTED_LAUNCHED.fetch_max(number as u64, Ordering::Release);
}

/// Called by the driver, perhaps in a separate thread.
extern "C" fn is_reported(number: *mut c_void) {
    REPORTED_OTHERS.fetch_max(number as u64, Ordering::Release);
}

//! Pending barriers: what later calls wait for after a free that made a barrier and did not wait
//! (docs/ordering.md 4). They wait for the free's own event, never for "now" (hazard 29).
//!
//! Note [Which frees to wait for]. Natively the free has waited when it returns, and any thread that
//! knows of its return, by whatever means, relies on that. Which threads know we cannot see; so
//! * the thread of the free itself waits in its queries: it knows;
//! * the pending barriers of a thread that has ended concern every thread: the ended thread was joined,
//!   and if not, its free has returned all the same;
//! * for the frees of other, living threads, a query that would return "not ready" waits as long as
//!   `PATIENCE` lasts, and then returns so. It may be the poll of a loop that feeds the very kernel, by
//!   means that we do not see (natively the free has not returned then), so it must not wait for ever.
//!   While a free is inside its own wait, nothing of that context has to be waited for: that free has not
//!   returned.

use core::ptr::null;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cachealloc_core::order::{BarrierNumber, Observer, TrackedBarrier};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::clock::Instant;
use crate::contexts::events::{Event, EventRef};
use crate::contexts::{self, Context};
use crate::driver::api;
use crate::driver::sys::CuError;
use crate::lock::lock;
use crate::ordering::LEDGER;
use crate::process::own_thread;
use crate::process::thread::{self, Thread};
use crate::statistics::waits::{self, Wait};

/// A pending barrier whose thread has ended.
#[derive(Clone)]
struct LeftBarrier {
    context_id: u64,
    number: BarrierNumber,
    event: EventRef,
}

/// The newest of each context, which includes those before it.
static LEFT: Mutex<Vec<LeftBarrier>> = Mutex::new(Vec::new());
static LEFT_COUNT: AtomicUsize = AtomicUsize::new(0);

/// How long queries wait for the frees of other threads, all together: this long, plus this share of the
/// elapsed time. A program that polls loses no more.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_PART: u32 = 50;
const POLL_EVERY: Duration = Duration::from_micros(20);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// This thread's free made barrier `number`.
pub(crate) fn track(thread: &Thread, context: &Context, number: BarrierNumber, event: EventRef) {
    let mut tracked = TrackedBarrier::new();
    tracked.track(context.id, number);
    thread.tracked.set(tracked);
    match replace_event(thread, event.into_raw()) {
        Some(old) => old.keep(thread),
        None => thread::watch(),
    }
}

/// This thread's free skipped its barrier and relies on the last one, if that is still pending.
#[inline]
pub(crate) fn share_barrier(thread: &Thread, context: &Context) {
    let Some(number) = context.covers.pending() else { return };
    if !rule_holds(Rule::ElidedFreeShares) {
        return;
    }
    if thread.tracked.get().tracked() == Some((context.id, number)) {
        return;
    }
    if let Some(event) = context.last_barrier.event(number) {
        track(thread, context, number, event);
    }
}

/// Waits for the barrier of this thread's last free. False: there was none.
pub(crate) fn wait_own(thread: &Thread) -> bool {
    if !rule_holds(Rule::QueryAsksAgain) {
        return false;
    }
    if !rule_holds(Rule::QueryWaitsForOwnFrees) {
        wait_all(Wait::Query);
        return true;
    }
    let Some((context_id, number)) = thread.tracked.get().tracked() else { return false };
    let context = contexts::find(context_id);
    let event = replace_event(thread, null());
    thread.tracked.set(TrackedBarrier::new());
    let (Some(context), Some(event)) = (context, event) else { return false };
    wait_pending(context, number, &event);
    true
}

fn wait_pending(context: &Context, number: BarrierNumber, event: &EventRef) {
    // Another thread may have waited for it since the query: then its result is stale.
    if !context.covers.pending_barriers.is_pending(number) {
        return;
    }
    let Some(_open) = context.stay_open() else { return };
    if waits::timed(Wait::Query, || api::relaxed(|| event.synchronize())).is_ok() {
        context.covers.pending_barriers.complete(number);
    }
}

/// Waits for the barriers of threads that have ended. False: there was none.
pub(crate) fn wait_for_left() -> bool {
    if LEFT_COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    // Kept in the list while we wait: another thread may query too.
    let left = lock(&LEFT).clone();
    for LeftBarrier { context_id, number, event } in &left {
        if let Some(context) = contexts::find(*context_id) {
            wait_pending(context, *number, event);
        }
    }
    let is_over = |one: &LeftBarrier| left.iter().any(|waited| waited.is_as_late_as(one));
    change_left(|all| all.retain(|one| !is_over(one)));
    !left.is_empty()
}

/// Waits for frees of other threads, but not for ever. False: there was none.
pub(crate) fn wait_for_others() -> bool {
    if !rule_holds(Rule::OthersFreesForAWhile) || !rule_holds(Rule::QueryAsksAgain) {
        return false;
    }
    let mut any = false;
    for context in contexts::all() {
        if context.frees_in_progress.load(Ordering::Acquire) != 0 {
            continue;
        }
        let Some(number) = context.covers.pending() else { continue };
        let Some(event) = context.last_barrier.event(number) else { continue };
        let Some(_open) = context.stay_open() else { continue };
        any = true;
        let begun = Instant::now();
        let patience = patience_left();
        let over = waits::timed(Wait::Query, || {
            let mut code = api::relaxed(|| event.query());
            while code == Err(CuError::NOT_READY) && begun.elapsed() < patience {
                own_thread::sleep(POLL_EVERY);
                code = api::relaxed(|| event.query());
            }
            code
        });
        WAITED_NS.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if over.is_ok() {
            context.covers.pending_barriers.complete(number);
        }
    }
    any
}

fn patience_left() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let allowed = PATIENCE + BEGAN.get_or_init(Instant::now).elapsed() / PATIENCE_PART;
    allowed.saturating_sub(Duration::from_nanos(WAITED_NS.load(Ordering::Relaxed)))
}

/// The context is gone.
pub(crate) fn context_ended(context_id: u64) {
    if LEFT_COUNT.load(Ordering::Acquire) != 0 {
        change_left(|all| all.retain(|left| left.context_id != context_id));
    }
}

/// Waits for the last barrier of every context: something that earlier work may use is about to end, or
/// an observer beyond the barriers is about to appear.
pub(crate) fn wait_all(reason: Wait) {
    let broken = match reason {
        Wait::Teardown => !rule_holds(Rule::TeardownWaits),
        Wait::Observer => !rule_holds(Rule::ObserverWaits),
        _ => false,
    };
    if broken {
        return;
    }
    contexts::all().for_each(|context| wait(context, reason));
}

/// As `wait_all`, for one context.
#[inline]
pub(crate) fn wait(context: &Context, reason: Wait) {
    let Some(number) = context.covers.pending() else { return };
    if context.last_barrier.event(number).is_none() {
        return;
    }
    // The end of a context has taken the barrier away before.
    let Some(_open) = context.stay_open() else { return };
    let Some(event) = context.last_barrier.event(number) else { return };
    if !rule_holds(Rule::PendingBarrierIsOfItsFree) {
        let _ = context.enter(api::ctx_synchronize);
        return;
    }
    if waits::timed(reason, || api::relaxed(|| event.synchronize())).is_ok() {
        context.covers.pending_barriers.complete(number);
    }
}

/// The process ends. Natively each free would have waited and flushed what kernels print; now the last
/// barriers, and in mode `relaxed` the last free, are waited for instead. Polls: the wait ends when a
/// fault has ended the work, and after a time that no kernel needs which ends at all. A kernel that
/// never ends would natively have blocked the free; but a program that exits from a signal handler exits
/// natively, too.
pub(crate) fn wait_at_end() {
    // From here on frees wait themselves: those of static objects, which are destroyed after this.
    let _ = LEDGER.note_observer(Observer::ProcessEnd);
    LEDGER.exclusive.waited();
    let until = Instant::now() + END_WAIT_MAX;
    for context in contexts::all() {
        let Some(_open) = context.keep_open() else { continue };
        let barrier =
            context.covers.pending().and_then(|pending| context.last_barrier.event(pending));
        for event in [barrier, context.stream_frees.last_plain_free()].into_iter().flatten() {
            end_behind(&event, until);
        }
    }
}

fn end_behind(event: &EventRef, until: Instant) {
    while api::relaxed(|| event.query()) == Err(CuError::NOT_READY) && Instant::now() < until {
        own_thread::sleep(END_WAIT_STEP);
    }
    // Returns at once, and flushes the output of kernels (measured); a query does not.
    if api::relaxed(|| event.query()).is_ok() {
        let _ = api::relaxed(|| event.synchronize());
    }
}

const END_WAIT_MAX: Duration = Duration::from_secs(60);
const END_WAIT_STEP: Duration = Duration::from_micros(100);

/// The thread ends: its pending barriers concern every thread.
pub(crate) fn thread_ended(thread: &Thread) {
    let tracked = thread.tracked.replace(TrackedBarrier::new()).tracked();
    let event = replace_event(thread, null());
    if let (Some((context_id, number)), Some(event)) = (tracked, event)
        && rule_holds(Rule::PendingBarrierOutlivesThread)
    {
        let own = LeftBarrier { context_id, number, event };
        change_left(|all| {
            if !all.iter().any(|other| other.is_as_late_as(&own)) {
                all.retain(|other| !own.is_as_late_as(other));
                all.push(own);
            }
        });
    }
    let spare = thread.spare_event.replace(null());
    // SAFETY: kept by `EventRef::keep`, as if by `into_raw`, and taken out once.
    drop((!spare.is_null()).then(|| unsafe { EventRef::from_raw(spare) }));
}

impl LeftBarrier {
    /// Whether a wait for this includes a wait for the other.
    fn is_as_late_as(&self, other: &LeftBarrier) -> bool {
        self.context_id == other.context_id && self.number >= other.number
    }
}

fn change_left(change: impl FnOnce(&mut Vec<LeftBarrier>)) {
    let mut left = lock(&LEFT);
    change(&mut left);
    LEFT_COUNT.store(left.len(), Ordering::Release);
}

fn replace_event(thread: &Thread, event: *const Event) -> Option<EventRef> {
    let old = thread.tracked_event.replace(event);
    // SAFETY: every non-null pointer stored here came from `into_raw` and is taken out once.
    (!old.is_null()).then(|| unsafe { EventRef::from_raw(old) })
}

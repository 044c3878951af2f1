//! The context-wide barrier (docs/ordering.md 2): orders what the driver's own `cuMemFree` orders,
//! without its wait.
//!
//! `cuCtxRecordEvent` captures all work of the context. `cuCtxWaitEvent` orders all later work
//! after it, at once or when another stream gets work (`deferred_wait`). Both invalidate a capture
//! of the context, so they run under `Context::barrier_lock`, and only while no stream captures.

use std::sync::MutexGuard;

use cachealloc_core::TagEpoch;
use cachealloc_core::order::{
    AfterBarrier, BarrierNumber, Observer, SubmissionReading, SyncedStreams,
};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::stream_frees;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult};
use crate::lock::lock;
use crate::ordering::{captures, deferred_wait, real_frees};
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::thread::Thread;
use crate::statistics::waits;
use crate::statistics::waits::Wait;
use crate::test_delay::test_delay;

/// Reason why no barrier was made.
pub(crate) enum Refused {
    /// A stream of the process captures: wait with the driver's own free instead.
    Capturing,
    /// A real free may hold the context, and a barrier would block. Or green contexts exist, and no
    /// event covers the work of all of them.
    ContextBusy,
    /// The driver refused with this code.
    Failed(CuError),
}

/// An event recorded after all work of a context so far.
pub(crate) struct Recorded {
    pub seen: SubmissionReading,
    pub event: EventRef,
    /// Epoch before which tags are dropped once all later work is ordered after the event, or the
    /// event is complete.
    pub mark: Option<TagEpoch>,
    /// Whether the caller must wait before publishing anything: this is no barrier, or the process
    /// stopped being exclusive meanwhile.
    pub wait_first: bool,
}

/// Barrier that orders a free.
pub(crate) enum FreeOrdering {
    /// A barrier made for this free.
    OwnBarrier(Recorded),
    /// Another thread's barrier, begun after the free.
    SharedBarrier { number: BarrierNumber, event: EventRef, wait_first: bool },
}

/// Orders all later work of the context after all work so far, by a barrier of this free or a later
/// one of another thread. Publishes nothing: the caller does so afterwards.
///
/// The driver takes 20 to 100 us for a barrier while several threads launch and make barriers
/// (measured). So barriers run one at a time, and a thread that waited often finds that the
/// previous barrier covers its free.
#[inline]
pub(crate) fn order(thread: &Thread, context: &'static Context) -> Result<FreeOrdering, Refused> {
    let since = context.covers.pending_barriers.taken();
    let own_event = fresh_event(thread, context)?;
    let guard = lock_barriers(context)?;
    let shared = context.covers.pending_barriers.in_since(since);
    if let Some((number, event)) = shared.and_then(|number| context.last_barrier.since(number)) {
        drop(guard);
        own_event.keep(thread);
        // Recorded by the barrier's thread before this check, as order D3 of the core requires.
        let wait_first = !LEDGER.exclusive.is_exclusive(context.id);
        return Ok(FreeOrdering::SharedBarrier { number, event, wait_first });
    }
    make(thread, context, own_event, &guard).map(FreeOrdering::OwnBarrier)
}

/// Makes a barrier, under the barrier lock of the context.
#[inline(always)]
fn make(
    thread: &Thread,
    context: &'static Context,
    event: EventRef,
    _guard: &BarrierGuard,
) -> Result<Recorded, Refused> {
    let Recorded { seen, event, mark, .. } = record_inside(context, event)?;
    let ordered = deferred_wait::order_later_work(thread, context, &event, seen);
    ordered.map_err(Refused::Failed)?;
    // Filed and recorded before the cover is published: a free that skips its barrier because of
    // this one finds it here (order D3 of the core).
    context.last_barrier.file(seen.number(), event.clone());
    let after = LEDGER.barrier_is_in(&context.covers, seen, context.id);
    let wait_first = after == AfterBarrier::WaitFirst;
    if let Some(mark) = mark.filter(|_| !wait_first) {
        stream_frees::barrier_passed(context, mark);
    }
    Ok(Recorded { seen, event, mark, wait_first })
}

/// Returns whether a wait for a context covers only part of its work: with green contexts, which
/// share the memory of the primary one (hazard 44).
pub(crate) fn context_waits_are_partial() -> bool {
    LEDGER.exclusive.has_observed(Observer::GreenContext) && rule_holds(Rule::GreenWaitIsPartial)
}

/// Records all work of the context into an event, and orders nothing. Fails once green contexts
/// exist: they share the primary context's memory, and the event belongs to only one of them.
pub(crate) fn record(thread: &Thread, context: &'static Context) -> Result<Recorded, Refused> {
    if context_waits_are_partial() {
        return Err(Refused::ContextBusy);
    }
    // Some callers hold locks, and those would not wait for that free on the plain driver.
    if real_frees::any(context) && rule_holds(Rule::BarrierAvoidsRealFree) {
        return Err(Refused::ContextBusy);
    }
    let event = fresh_event(thread, context)?;
    let _guard = lock_barriers(context)?;
    record_inside(context, event)
}

/// Takes an event. Call before locking the barrier lock: while another thread's real free holds the
/// context, the driver creates no event, and the begin of a capture must not wait for that (hazard
/// 32).
#[inline]
fn fresh_event(thread: &Thread, context: &'static Context) -> Result<EventRef, Refused> {
    context.events.take(thread, |body| context.enter(body)).map_err(Refused::Failed)
}

#[inline(always)]
fn record_inside(context: &'static Context, event: EventRef) -> Result<Recorded, Refused> {
    // In this order: D4 of the core.
    let first = rule_holds(Rule::TagsBeforeNumber).then(|| stream_frees::mark(context));
    let seen = LEDGER.before_barrier(&context.covers);
    test_delay(Rule::TagsBeforeNumber);
    let mark = first.unwrap_or_else(|| stream_frees::mark(context));
    match api::ctx_record_event(context.handle, event.handle()) {
        Ok(()) => Ok(Recorded { seen, event, mark, wait_first: true }),
        Err(error) => Err(Refused::Failed(error)),
    }
}

/// The barrier lock of a context; `None` without `Rule::CaptureExcludesBarriers`.
type BarrierGuard = Option<MutexGuard<'static, SyncedStreams>>;

/// Admits one barrier, or one begin of a capture, at a time.
#[inline(always)]
fn lock_barriers(context: &'static Context) -> Result<BarrierGuard, Refused> {
    test_delay(Rule::BarrierAvoidsRealFree);
    let guard = rule_holds(Rule::CaptureExcludesBarriers).then(|| lock(&context.barrier_lock));
    if captures::any() && rule_holds(Rule::CaptureWaitsInDriver) {
        return Err(Refused::Capturing);
    }
    if real_frees::any(context) && rule_holds(Rule::BarrierAvoidsRealFree) {
        return Err(Refused::ContextBusy);
    }
    test_delay(Rule::CaptureExcludesBarriers);
    Ok(guard)
}

/// Waits on the host for what was recorded. Nothing is published because of the record before that
/// has completed.
pub(crate) fn wait(context: &'static Context, recorded: &Recorded, reason: Wait) -> CuResult {
    // A capture may have begun since the barrier lock was released.
    let code = waits::timed(reason, || api::relaxed(|| recorded.event.synchronize()));
    if code.is_ok() {
        context.covers.waited(recorded.seen);
        if let Some(mark) = recorded.mark {
            stream_frees::barrier_passed(context, mark);
        }
    }
    code
}

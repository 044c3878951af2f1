//! The context-wide barrier (docs/ordering.md 2): what a native `cuMemFree` orders, without its wait.
//!
//! `cuCtxRecordEvent` captures all work of the context, `cuCtxWaitEvent` puts all later work
//! behind it. Both kill a capture of the context, so they run under `Context::gate`, and only while
//! nothing captures.

use std::sync::MutexGuard;

use cachealloc_core::TagMark;
use cachealloc_core::order::{AfterBarrier, BarrierNumber, Observer, SeenAll};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::stream_frees;
use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::{CuResult, SUCCESS};
use crate::lock::lock;
use crate::ordering::{LEDGER, captures, real_frees, widen};
use crate::process::thread::Thread;
use crate::statistics::waits::{self, Wait};

/// Why there is no barrier.
pub enum Refused {
    /// A stream of the process captures: settle instead.
    Capturing,
    /// A real free may hold the context: a barrier would stand still.
    Held,
    /// The driver's code.
    Failed(CuResult),
}

/// A barrier that is in.
pub struct Passed {
    pub seen: SeenAll,
    pub event: EventRef,
    /// Tags made before it are dropped once it may be leaned on.
    mark: Option<TagMark>,
    /// The process stopped being exclusive meanwhile: wait before anything is published.
    pub wait_first: bool,
}

/// What orders a free.
pub enum Ordered {
    /// A barrier of its own.
    By(Passed),
    /// Another thread's, begun after the free.
    SharedWith { number: BarrierNumber, event: EventRef, wait_first: bool },
}

/// Orders all later work of the context behind all work so far, by a barrier of this free or of
/// another thread that came later. Publishes nothing: that is the caller's, and only afterwards.
///
/// The driver takes 20 to 100 us for a barrier while several threads launch and make barriers
/// (measured); so they go one at a time, and whoever waited for its turn finds that the one before
/// has done its work.
pub fn order(thread: &Thread, context: &'static Context) -> Result<Ordered, Refused> {
    let since = context.covers.pending_barriers.taken();
    let own_event = fresh_event(thread, context)?;
    let gate = pass_gate(context)?;
    let shared = context.covers.pending_barriers.in_since(since);
    if let Some((number, event)) = shared.and_then(|number| context.last_barrier.since(number)) {
        drop(gate);
        own_event.keep(thread);
        // Noted by its maker before this look, as order D3 of the core wants it.
        let wait_first = !LEDGER.exclusive.is_exclusive(context.id);
        return Ok(Ordered::SharedWith { number, event, wait_first });
    }
    make(context, own_event).map(Ordered::By)
}

/// Puts a barrier of this free's own in: one that the caller will wait for.
pub fn put(thread: &Thread, context: &'static Context) -> Result<Passed, Refused> {
    let event = fresh_event(thread, context)?;
    let _gate = pass_gate(context)?;
    make(context, event)
}

/// With the gate held.
fn make(context: &'static Context, event: EventRef) -> Result<Passed, Refused> {
    let (event, seen, mark) = record_inside(context, event)?;
    let code = api::ctx_wait_event(context.handle, event.handle());
    if code != SUCCESS {
        return Err(Refused::Failed(code));
    }
    // Filed and noted before the cover passes: who skips a barrier because of this one finds it
    // here (order D3 of the core).
    context.last_barrier.file(seen.number(), event.clone());
    let after = LEDGER.barrier_is_in(&context.covers, seen, context.id);
    let wait_first = after == AfterBarrier::WaitFirst;
    widen(Rule::BarrierMark);
    if let Some(mark) = mark.filter(|_| !wait_first) {
        stream_frees::barrier_passed(context, mark);
    }
    Ok(Passed { seen, event, mark, wait_first })
}

type Recorded = (EventRef, SeenAll, Option<TagMark>);

/// Records all work of the context into an event, and orders nothing. Not where green contexts exist:
/// the memory is the primary one's and theirs, and the event is of one of them.
pub fn record(thread: &Thread, context: &'static Context) -> Result<Recorded, Refused> {
    if LEDGER.exclusive.has_observed(Observer::GreenContext) && rule_holds(Rule::GreenWaitIsPartial)
    {
        return Err(Refused::Held);
    }
    let event = fresh_event(thread, context)?;
    let _gate = pass_gate(context)?;
    record_inside(context, event)
}

/// Taken before the gate: while another thread's native free holds the context, the driver makes no
/// event, and nobody who wants to begin a capture shall wait for that (hazard 32).
fn fresh_event(thread: &Thread, context: &'static Context) -> Result<EventRef, Refused> {
    context.events.take(thread, |body| context.enter(body)).map_err(Refused::Failed)
}

fn record_inside(context: &'static Context, event: EventRef) -> Result<Recorded, Refused> {
    let seen = LEDGER.before_barrier(&context.covers);
    let mark = stream_frees::mark(context);
    match api::ctx_record_event(context.handle, event.handle()) {
        SUCCESS => Ok((event, seen, mark)),
        code => Err(Refused::Failed(code)),
    }
}

/// One barrier, or one begin of a capture, at a time.
#[inline(always)]
fn pass_gate(context: &'static Context) -> Result<Option<MutexGuard<'static, ()>>, Refused> {
    widen(Rule::BarrierGivesWay);
    let gate = rule_holds(Rule::CaptureGate).then(|| lock(&context.gate));
    if captures::any() && rule_holds(Rule::CaptureSettles) {
        return Err(Refused::Capturing);
    }
    if real_frees::any(context) && rule_holds(Rule::BarrierGivesWay) {
        return Err(Refused::Held);
    }
    widen(Rule::CaptureGate);
    Ok(gate)
}

/// Waits on the host for a barrier that is in (mode `strict`, or the host could look).
pub fn wait(context: &'static Context, passed: &Passed, reason: Wait) -> CuResult {
    // Somebody may have begun a capture since the gate was passed.
    let code = waits::timed(reason, || api::relaxed(|| passed.event.synchronize()));
    if code == SUCCESS {
        context.covers.waited(passed.seen);
        if let Some(mark) = passed.mark {
            stream_frees::barrier_passed(context, mark);
        }
    }
    code
}

//! The deferred wait of a barrier (docs/ordering.md 2; `core/order/deferral.rs` has the states and
//! their proof): which context has one, and how it is submitted. Submissions check for it in
//! `before_submission`.
//!
//! The deferred wait is for the newest barrier of one context: the only one that submits
//! (`core/order/deferring_context.rs`). While there is a deferred wait, nothing captures: the begin
//! of a capture submits it first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, RwLockReadGuard};

use cachealloc_core::order::{BarrierNumber, SubmissionReading, SyncedStreams};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult};
use crate::gate;
use crate::lock::lock;
use crate::ordering::across;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::registry;
use crate::state::thread::Thread;
use crate::test_delay::test_delay;

/// Submits the deferred wait, if this context has one. Returns `false` if the driver refuses that
/// (`submit_wait`). The caller must hold no barrier lock.
pub(super) fn flush(context: &'static Context) -> bool {
    let open = hold_context(context);
    // Another thread has submitted it.
    if open.is_none() && !context.is_dead() && rule_holds(Rule::ReleasedReferenceFlushes) {
        return true;
    }
    let _guard = lock(&context.barrier_lock);
    // Another thread has submitted it, and since then another context may have deferred one.
    if !has_deferred(context) && rule_holds(Rule::DeferralIsPerContext) {
        return true;
    }
    // Otherwise the context has ended, and its work with it.
    if open.is_some()
        && let Some((_, event)) = deferred_event(context)
        && !submit_wait(context, &event)
    {
        return false;
    }
    LEDGER.deferral.flushed();
    clear_deferred(context);
    true
}

/// Blocks the end of the context while held. Returns `None` if the context has ended, or has no
/// deferred wait any more. A call that ends the context submits the wait first, and most calls that
/// might end it only drop a reference.
pub(super) fn hold_context(context: &'static Context) -> Option<RwLockReadGuard<'static, ()>> {
    match rule_holds(Rule::ReleasedReferenceFlushes) {
        true => context.open_while(|| has_deferred(context)),
        false => context.keep_open(),
    }
}

/// Returns the context that has a deferred wait. It may have ended.
pub(super) fn deferring_context() -> Option<&'static Context> {
    let id = LEDGER.deferring_context.context_id()?;
    contexts::find(id).or_else(|| registry::ever().find(|context| context.id == id))
}

/// Returns the barrier for which this context has a deferred wait, if it is not complete. The
/// caller must hold the barrier lock.
pub(super) fn deferred_event(context: &'static Context) -> Option<(BarrierNumber, EventRef)> {
    let newest = context.last_barrier.newest_barrier().filter(|_| has_deferred(context))?;
    context.covers.pending_barriers.is_pending(newest.0).then_some(newest)
}

/// Returns `false` if nothing waits for the event: the thread is in a host function or in the
/// destructor of a user object, where the driver refuses such calls. The wait stays deferred for
/// the next thread that submits work.
pub(super) fn submit_wait(context: &Context, event: &EventRef) -> bool {
    if api::ctx_wait_event(context.handle, event.handle()).is_ok() {
        return true;
    }
    // Waiting on the host orders later work as well. The program's own calls report errors of the
    // context.
    let waited = api::relaxed(|| event.synchronize());
    waited != Err(CuError::NOT_PERMITTED) || !rule_holds(Rule::RefusedWaitStaysDeferred)
}

pub(super) fn clear_deferred(context: &'static Context) {
    LEDGER.deferring_context.clear(context.id);
}

/// Returns the barrier lock of this context, with no deferred wait: later work could not submit
/// one, or a capture is about to begin, which a wait in its context would invalidate. The wait is
/// still deferred where the driver refuses it, as it will the call of the caller. The caller must
/// hold no barrier lock.
pub(crate) fn lock_barriers_flushed(
    context: &'static Context,
) -> MutexGuard<'static, SyncedStreams> {
    loop {
        let flushed = deferring_context().is_none_or(flush);
        let guard = lock(&context.barrier_lock);
        // Another free may have deferred a wait since.
        if !has_deferred(context) || !flushed {
            return guard;
        }
    }
}

/// Returns whether the context has a deferred wait. This does not change while its barrier lock is
/// held.
#[inline]
pub(super) fn has_deferred(context: &Context) -> bool {
    LEDGER.deferring_context.is(context.id)
}

/// Submits the deferred wait of a context that may be about to end. The call may only drop a
/// reference.
pub(crate) fn context_may_end(context: &'static Context) {
    if has_deferred(context) {
        flush(context);
    }
}

/// Orders all later work after the barrier that is being made in this context, at once or when it
/// is needed. The caller must hold the barrier lock, between the barrier's record and its being
/// filed.
#[inline(always)]
pub(crate) fn order_later_work(
    thread: &Thread,
    context: &'static Context,
    event: &EventRef,
    seen: SubmissionReading,
) -> CuResult {
    if is_deferred(context) { Ok(()) } else { wait_at_once(thread, context, event, seen) }
}

/// Returns whether the wait is deferred. If one stream has a deferred wait already, the next work
/// of another stream finds it.
#[inline(always)]
fn is_deferred(context: &'static Context) -> bool {
    match LEDGER.may_defer() {
        true => may_defer(context) && (has_deferred(context) || may_start_deferral(context)),
        false => defer_per_stream(context),
    }
}

/// Returns `false` if another stream has got work meanwhile, or the work is not this context's.
#[inline(never)]
fn may_start_deferral(context: &'static Context) -> bool {
    let becomes = start_deferral(context);
    test_delay(Rule::OtherStreamFlushes);
    becomes && LEDGER.may_defer()
}

/// Returns `false` if the wait must be submitted at once.
#[inline(never)]
fn defer_per_stream(context: &'static Context) -> bool {
    may_defer(context) && are_several() && start_deferral(context) && LEDGER.may_defer_per_stream()
}

/// Returns whether this context is the deferring one, from now on or already: only then does its
/// barrier change the state of the streams.
fn start_deferral(context: &'static Context) -> bool {
    has_deferred(context) || submits(context) && LEDGER.deferring_context.try_set(context.id)
}

/// Returns whether the streams that have work are this context's. A context that has never
/// submitted may be exclusive, too, as long as no other one submits.
fn submits(context: &Context) -> bool {
    // Under the promise they are those of every context, and none defers.
    let unwatched = || !across::is_promised() && !gate::watches_submissions(Ordering::SeqCst);
    LEDGER.exclusive.is_submitter(context.id)
        || unwatched() && LEDGER.exclusive.counts_as_submitter(context.id)
        || !rule_holds(Rule::OnlySubmitterForgets)
}

#[inline(never)]
fn wait_at_once(
    thread: &Thread,
    context: &'static Context,
    event: &EventRef,
    seen: SubmissionReading,
) -> CuResult {
    api::ctx_wait_event(context.handle, event.handle())?;
    if !rule_holds(Rule::DeferralIsPerContext) || start_deferral(context) {
        LEDGER.deferral.clear_deferred();
        LEDGER.wait_submitted(seen, thread.lane());
        clear_deferred(context);
    }
    Ok(())
}

/// Returns whether threads other than the one with a separate lane have submitted recently. If so,
/// each stream waits by itself, because the wait of a context is expensive beside another thread's
/// submissions. Otherwise the wait is submitted at once, and the streams are forgotten: if only one
/// gets work from then on, it waits no more.
fn are_several() -> bool {
    /// Number of barriers in a row without another thread's work after which there is no such work.
    const LATELY: u64 = 16;
    // The very first submission is counted with the others'.
    static OTHERS: AtomicU64 = AtomicU64::new(1);
    static BARRIERS_SINCE: AtomicU64 = AtomicU64::new(LATELY);
    let others = LEDGER.submitted.begun_by_others();
    let quiet = OTHERS.swap(others, Ordering::Relaxed) == others;
    let since = if quiet { BARRIERS_SINCE.load(Ordering::Relaxed) + 1 } else { 0 };
    BARRIERS_SINCE.store(since, Ordering::Relaxed);
    since < LATELY
}

#[inline]
fn may_defer(context: &Context) -> bool {
    let config = config::get();
    config.skip_barriers && !across::is_promised() && LEDGER.exclusive.is_exclusive(context.id)
}

//! A barrier that puts its wait off (docs/ordering.md 2; the states and their proof: `core/order/deferral.rs`): what owes it, and how it
//! is paid. What comes to a stream meets it in `before_submission`.
//!
//! What is owed is the wait for the newest barrier of one context: of the only one that submits (`core/order/deferring_context.rs`). While
//! something is owed, nothing captures: the begin of a capture pays first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, RwLockReadGuard};

use cachealloc_core::order::{BarrierNumber, SubmissionReading, SyncedStreams};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::config;
use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::lock::lock;
use crate::ordering::across;
use crate::state::barriers::{LEDGER, WATCH};
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::registry;
use crate::state::thread::Thread;
use crate::test_delay::test_delay;

/// Puts in the wait that was put off, if it is this context that owes one. Call without a gate.
pub(super) fn flush(context: &'static Context) {
    let open = hold_context(context);
    // Another thread has paid.
    if open.is_none() && !context.is_dead() && rule_holds(Rule::ReferenceLessPays) {
        return;
    }
    let _guard = lock(&context.barrier_lock);
    // Another thread has paid, and since then another context may owe.
    if !has_deferred(context) && rule_holds(Rule::OneContextOwes) {
        return;
    }
    // Gone, and its work with it.
    if open.is_some()
        && let Some((_, event)) = deferred_event(context)
    {
        submit_wait(context, &event);
    }
    LEDGER.deferral.flushed();
    clear_deferred(context);
}

/// Holds off the end of the context. None: it has ended, or owes nothing any more. What ends it pays before, and what may be
/// an end is mostly a reference less.
pub(super) fn hold_context(context: &'static Context) -> Option<RwLockReadGuard<'static, ()>> {
    match rule_holds(Rule::ReferenceLessPays) {
        true => context.open_while(|| has_deferred(context)),
        false => context.keep_open(),
    }
}

/// The context that owes, perhaps one that has ended.
pub(super) fn deferring_context() -> Option<&'static Context> {
    let id = LEDGER.deferring_context.context_id()?;
    registry::ever().find(|context| context.id == id)
}

/// The barrier whose wait this context owes, if it is not over. Call with the gate held.
pub(super) fn deferred_event(context: &'static Context) -> Option<(BarrierNumber, EventRef)> {
    let newest = context.last_barrier.newest_barrier().filter(|_| has_deferred(context))?;
    context.covers.pending_barriers.is_pending(newest.0).then_some(newest)
}

pub(super) fn submit_wait(context: &Context, event: &EventRef) {
    if api::ctx_wait_event(context.handle, event.handle()).is_err() {
        // As good for what comes, and an error of the context's is the program's to meet.
        let _ = api::relaxed(|| event.synchronize());
    }
}

pub(super) fn clear_deferred(context: &'static Context) {
    LEDGER.deferring_context.clear(context.id);
}

/// The gate of this context, with nothing owed: what comes could not pay, or a capture is about to begin, of which a wait
/// in its context would be the end. Call without a gate.
pub(crate) fn lock_barriers_flushed(
    context: &'static Context,
) -> MutexGuard<'static, SyncedStreams> {
    loop {
        if let Some(deferring_context) = deferring_context() {
            flush(deferring_context);
        }
        let guard = lock(&context.barrier_lock);
        // Another free may owe since.
        if !has_deferred(context) {
            return guard;
        }
    }
}

/// With its gate held, this stays so.
#[inline]
pub(super) fn has_deferred(context: &Context) -> bool {
    LEDGER.deferring_context.is(context.id)
}

/// The context may be about to end. Perhaps it only loses a reference.
pub(crate) fn context_may_end(context: &'static Context) {
    if has_deferred(context) {
        flush(context);
    }
}

/// The barrier that is being made in this context: orders all later work behind it, at once or when it is due. Call with the
/// gate held, between its record and its being filed.
#[inline(always)]
pub(crate) fn order_later_work(
    thread: &Thread,
    context: &'static Context,
    event: &EventRef,
    seen: SubmissionReading,
) -> CuResult {
    if is_deferred(context) { Ok(()) } else { wait_at_once(thread, context, event, seen) }
}

/// What one stream owes already, what comes to another one finds.
#[inline(always)]
fn is_deferred(context: &'static Context) -> bool {
    match LEDGER.may_defer() {
        true => may_defer(context) && (has_deferred(context) || may_start_deferral(context)),
        false => defer_per_stream(context),
    }
}

/// False: another stream has got work meanwhile, or the work is not this context's.
#[inline(never)]
fn may_start_deferral(context: &'static Context) -> bool {
    let becomes = start_deferral(context);
    test_delay(Rule::OtherStreamPays);
    becomes && LEDGER.may_defer()
}

/// False: the wait is put in at once.
#[inline(never)]
fn defer_per_stream(context: &'static Context) -> bool {
    may_defer(context) && are_several() && start_deferral(context) && LEDGER.may_defer_per_stream()
}

/// Whether this context is the debtor from now on, or was it already: only then its barrier changes what is said of the streams.
fn start_deferral(context: &'static Context) -> bool {
    has_deferred(context) || submits(context) && LEDGER.deferring_context.try_set(context.id)
}

/// Whether the streams that have work are this context's. One that has never submitted may be exclusive, too, as long as no
/// other one does.
fn submits(context: &Context) -> bool {
    // Under the promise they are those of every context, and none owes.
    let unwatched = || !across::is_promised() && !WATCH.load(Ordering::SeqCst);
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
    if !rule_holds(Rule::OneContextOwes) || start_deferral(context) {
        LEDGER.deferral.clear_deferred();
        LEDGER.wait_submitted(seen, thread.lane());
        clear_deferred(context);
    }
    Ok(())
}

/// Whether other threads than the one with a lane of its own have submitted lately. Then each stream waits for itself: the wait
/// of a context is dear beside another thread's submissions. Else it is put in at once, and the streams are forgotten: if
/// only one gets work from then on, it waits no more.
fn are_several() -> bool {
    /// So many barriers without another thread's work say that there is none.
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

//! A barrier that puts its wait off (docs/ordering.md 2; the states and their proof: `core/order/sole.rs`). While one stream
//! is all there is, its own later work comes behind the barrier by the order of the stream; before anything goes to
//! another one, a wait is put in. Where several threads submit to several streams, each stream waits for itself, before it gets more.
//!
//! What is owed is the wait for the newest barrier of one context: of the only one that submits, for it takes an exclusive
//! process to owe at all. While something is owed, nothing captures: the begin of a capture pays first.

use core::ptr::{eq, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{MutexGuard, RwLockReadGuard};

use cachealloc_core::order::{ANY_STREAM, BarrierNumber, Lane, Move, SeenAll, StreamsBehind};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::config;
use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::{
    CuResult, LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, LaunchAttribute, LaunchConfig,
    STREAM_PER_THREAD, StreamHandle,
};
use crate::lock::lock;
use crate::ordering::{LEDGER, across, widen};
use crate::process::bypass;
use crate::process::thread::{self, Behind, Thread};

/// The context whose newest barrier has put its wait off; null: none.
static OWES: AtomicPtr<Context> = AtomicPtr::new(null_mut());

/// A call is about to submit to this stream, as `named` says it, or to `ANY_STREAM`. Behind its begin mark, if it has one, and
/// before the real call.
#[inline(always)]
pub(crate) fn goes_to(stream: u64) {
    if !LEDGER.sole.admits(stream) {
        moves(stream);
    }
}

/// The stream that a call names by this handle. The default stream of a thread is never admitted as the only one, but may
/// wait for itself.
#[inline(always)]
pub(crate) fn named(stream: StreamHandle, per_thread: bool) -> u64 {
    if per_thread && stream == 0 { STREAM_PER_THREAD as u64 } else { stream as u64 }
}

/// The stream of `cuLaunchKernelEx`. A launch that may begin before its predecessor ends does not come behind what the
/// stream has been given.
///
/// # Safety
///
/// Null, or the program's struct, valid for the call, and its array of attributes.
#[inline(always)]
pub(crate) unsafe fn of_launch(config: *const LaunchConfig, per_thread: bool) -> u64 {
    // SAFETY: the caller's promise.
    let Some(config) = (unsafe { config.as_ref() }) else { return ANY_STREAM };
    // SAFETY: as above.
    if config.numAttrs != 0 && unsafe { may_start_early(config) } {
        return ANY_STREAM;
    }
    named(config.hStream as StreamHandle, per_thread)
}

/// # Safety
///
/// As `of_launch`.
unsafe fn may_start_early(config: &LaunchConfig) -> bool {
    if config.attrs.is_null() || !rule_holds(Rule::EarlyStartPays) {
        return false;
    }
    let first = config.attrs.cast::<LaunchAttribute>();
    // SAFETY: the caller's promise.
    let attributes = unsafe { core::slice::from_raw_parts(first, config.numAttrs as usize) };
    attributes.iter().any(|attribute| {
        attribute.id == LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION && attribute.value[0] as u32 != 0
    })
}

/// Work of ours is about to go to a stream of ours.
pub(crate) fn goes_to_own() {
    if rule_holds(Rule::OwnStreamPays) {
        goes_to_any();
    }
}

/// As `goes_to` for a caller without a begin mark. While it asks it has one: else the streams might be forgotten between
/// its finding that nothing is owed and its saying so, and others would be admitted before what is owed since is paid.
fn goes_to_any() {
    if !LEDGER.sole.is(ANY_STREAM) {
        LEDGER.begin(false, Lane::Shared);
        moves(ANY_STREAM);
        LEDGER.end(false, Lane::Shared);
    }
}

#[cold]
fn moves(stream: u64) {
    // What a forked child has of our locks may be held for ever, and its calls fail.
    if bypass::is_switched_off() && rule_holds(Rule::ForkedChildOwesNothing) {
        return;
    }
    let admitted = if stream == STREAM_PER_THREAD as u64 { ANY_STREAM } else { stream };
    loop {
        let asked = LEDGER.sole.moves(admitted);
        match (asked, owing()) {
            (Move::Ahead, _) => return,
            (Move::Pay, Some(context)) if stream == ANY_STREAM => settle(context),
            (Move::Pay | Move::ComeBehind, Some(context)) => {
                if come_behind(context, stream) {
                    return;
                }
            }
            (_, None) => LEDGER.sole.nothing_owed(),
        }
    }
}

/// Lets this stream wait for the newest barrier, if the context owes that wait. True: whatever the stream gets comes behind
/// it. Call without a gate.
fn come_behind(context: &'static Context, stream: u64) -> bool {
    let is_default = stream == STREAM_PER_THREAD as u64;
    let known_as = if is_default { own_default_stream() } else { stream };
    // A barrier that is not noted yet is one of a free that has not returned.
    if let Some(number) = context.covers.pending()
        && thread::with(|thread| thread.behind.get()) == Some(behind(context, known_as, number))
    {
        return true;
    }
    // A stream of another context, which has come meanwhile, must not wait for this one (hazard 27).
    let open = stays_open(context).filter(|_| LEDGER.exclusive.is_exclusive(context.id));
    let Some(_open) = open else {
        settle(context);
        return false;
    };
    let mut gate = lock(&context.gate);
    if !owes(context) {
        return false;
    }
    if let Some((number, event)) = due(context) {
        let is_behind = gate.is(known_as, number) || !rule_holds(Rule::StreamsWaitForThemselves);
        let wait = || api::stream_wait_event(stream as StreamHandle, event.handle(), 0);
        if is_behind || wait().is_ok() {
            gate.waits(known_as, number);
            thread::with(|thread| thread.behind.set(Some(behind(context, known_as, number))));
            // The others wait when they get work.
            LEDGER.sole.owed_by_each();
            return true;
        }
        put_in(context, &event);
    }
    LEDGER.sole.paid();
    owes_no_more(context);
    false
}

fn behind(context: &Context, stream: u64, number: BarrierNumber) -> Behind {
    Behind { context_id: context.id, stream, number }
}

/// The default stream of the calling thread, which has the same handle in each. No handle is so large.
fn own_default_stream() -> u64 {
    1 << 63 | thread::with(Thread::number) as u64
}

/// Puts in the wait that was put off, if it is this context that owes one. Call without a gate.
fn settle(context: &'static Context) {
    let open = stays_open(context);
    let _gate = lock(&context.gate);
    // Gone, and its work with it.
    if open.is_some()
        && let Some((_, event)) = due(context)
    {
        put_in(context, &event);
    }
    LEDGER.sole.paid();
    owes_no_more(context);
}

/// Holds off the end of the context. None: it has ended. What may be an end is mostly a reference less.
fn stays_open(context: &'static Context) -> Option<RwLockReadGuard<'static, ()>> {
    loop {
        let open = context.stay_open();
        let is_certain = open.is_some() || context.is_dead();
        if is_certain || !rule_holds(Rule::ReferenceLessPays) {
            return open;
        }
    }
}

fn owing() -> Option<&'static Context> {
    // SAFETY: null, or one of the records of contexts, which are never removed.
    unsafe { OWES.load(Ordering::SeqCst).as_ref() }
}

/// The barrier whose wait this context owes, if it is not over. Call with the gate held.
fn due(context: &'static Context) -> Option<(BarrierNumber, EventRef)> {
    let newest = context.last_barrier.newest_barrier().filter(|_| owes(context))?;
    context.covers.pending_barriers.is_pending(newest.0).then_some(newest)
}

fn put_in(context: &Context, event: &EventRef) {
    if api::ctx_wait_event(context.handle, event.handle()).is_err() {
        // As good for what comes, and an error of the context's is the program's to meet.
        let _ = api::relaxed(|| event.synchronize());
    }
}

fn owes_no_more(context: &'static Context) {
    let owing = (context as *const Context).cast_mut();
    let _ = OWES.compare_exchange(owing, null_mut(), Ordering::SeqCst, Ordering::SeqCst);
}

/// The gate of this context, with nothing owed: what comes could not pay, or a capture is about to begin, of which a wait
/// in its context would be the end. Call without a gate.
pub(crate) fn gate_with_nothing_owed(
    context: &'static Context,
) -> MutexGuard<'static, StreamsBehind> {
    loop {
        if let Some(owing) = owing() {
            settle(owing);
        }
        let gate = lock(&context.gate);
        // Another free may owe since.
        if !owes(context) {
            return gate;
        }
    }
}

fn owes(context: &'static Context) -> bool {
    owing().is_some_and(|owing| eq(owing, context))
}

/// The context may be about to end. Perhaps it only loses a reference.
pub(crate) fn context_may_end(context: &'static Context) {
    if owes(context) {
        settle(context);
    }
}

/// Whatever is owed is paid: what comes may be unseen.
pub(crate) fn pay_all() {
    if rule_holds(Rule::BlindSpotPays) {
        goes_to_any();
    }
}

/// The stream is about to be destroyed: another one may get its handle, and does not come behind its work.
pub(crate) fn stream_ends(stream: StreamHandle) {
    let owes = LEDGER.sole.is(stream as u64) || LEDGER.sole.owes_one_by_one();
    if owes && rule_holds(Rule::EndedStreamPays) {
        goes_to_any();
    }
}

/// The barrier that is being made in this context: orders all later work behind it, at once or when it is due. Call with the
/// gate held, between its record and its being filed.
#[inline(always)]
pub(crate) fn order_later_work(
    thread: &Thread,
    context: &'static Context,
    event: &EventRef,
    seen: SeenAll,
) -> CuResult {
    if is_put_off(context) { Ok(()) } else { wait_at_once(thread, context, event, seen) }
}

/// What one stream owes already, what comes to another one finds.
#[inline(always)]
fn is_put_off(context: &'static Context) -> bool {
    match LEDGER.may_put_off() {
        true => may_put_off(context) && (owes(context) || may_owe(context)),
        false => each_owes(context),
    }
}

/// False: another stream has got work meanwhile.
#[inline(never)]
fn may_owe(context: &'static Context) -> bool {
    says_that_it_owes(context);
    widen(Rule::OtherStreamPays);
    LEDGER.may_put_off()
}

/// False: the wait is put in at once.
#[inline(never)]
fn each_owes(context: &'static Context) -> bool {
    let may = may_put_off(context) && are_several();
    may && {
        says_that_it_owes(context);
        LEDGER.may_put_off_each()
    }
}

fn says_that_it_owes(context: &'static Context) {
    OWES.store((context as *const Context).cast_mut(), Ordering::SeqCst);
}

#[inline(never)]
fn wait_at_once(
    thread: &Thread,
    context: &'static Context,
    event: &EventRef,
    seen: SeenAll,
) -> CuResult {
    api::ctx_wait_event(context.handle, event.handle())?;
    LEDGER.sole.none_owes();
    owes_no_more(context);
    LEDGER.wait_is_in(seen, thread.lane());
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
fn may_put_off(context: &Context) -> bool {
    let config = config::get();
    config.skip_barriers && !across::is_promised() && LEDGER.exclusive.is_exclusive(context.id)
}

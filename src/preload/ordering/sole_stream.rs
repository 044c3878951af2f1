//! A barrier that puts its wait off while one stream is all there is (docs/ordering.md 2; the states and their proof:
//! `core/order/sole.rs`). The stream's own later work comes behind the barrier by the order of the stream; before anything
//! goes to another one, the wait is put in.
//!
//! What is owed is the wait for the newest barrier of one context: of the only one that submits, for it takes an exclusive
//! process to owe at all. While something is owed, nothing captures: the begin of a capture pays first.

use core::ptr::{eq, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use cachealloc_core::order::{ANY_STREAM, Move, SeenAll};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::{
    CuResult, LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, LaunchAttribute, LaunchConfig,
    STREAM_PER_THREAD, StreamHandle,
};
use crate::lock::{is_held, lock};
use crate::ordering::{LEDGER, across, widen};
use crate::process::thread::Thread;

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

/// The stream that a call names by this handle. The default stream of a thread is never admitted as the only one.
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
        goes_to(ANY_STREAM);
    }
}

#[cold]
fn moves(stream: u64) {
    let stream = if stream == STREAM_PER_THREAD as u64 { ANY_STREAM } else { stream };
    while LEDGER.sole.moves(stream) == Move::Pay {
        let Some(context) = owing() else {
            LEDGER.sole.nothing_owed();
            continue;
        };
        let open = context.stay_open();
        let _gate = lock(&context.gate);
        match open {
            Some(_) => pay(context),
            // Gone, and its work with it.
            None => forget(context),
        }
    }
}

fn owing() -> Option<&'static Context> {
    // SAFETY: null, or one of the records of contexts, which are never removed.
    unsafe { OWES.load(Ordering::SeqCst).as_ref() }
}

/// Puts in the wait that was put off, if it is this context that owes one. Call with the gate held, and where the context does
/// not end meanwhile.
pub(crate) fn pay(context: &'static Context) {
    debug_assert!(is_held(&context.gate) || !rule_holds(Rule::CaptureGate));
    if owing().is_some_and(|owing| eq(owing, context))
        && let Some((number, event)) = context.last_barrier.newest_barrier()
        && context.covers.pending_barriers.is_pending(number)
    {
        put_in(context, &event);
    }
    forget(context);
}

fn put_in(context: &Context, event: &EventRef) {
    if api::ctx_wait_event(context.handle, event.handle()).is_err() {
        // As good for what comes, and an error of the context's is the program's to meet.
        let _ = api::relaxed(|| event.synchronize());
    }
}

fn forget(context: &'static Context) {
    owes_no_more(context);
    LEDGER.sole.paid();
}

fn owes_no_more(context: &'static Context) {
    let owing = (context as *const Context).cast_mut();
    let _ = OWES.compare_exchange(owing, null_mut(), Ordering::SeqCst, Ordering::SeqCst);
}

/// A capture is about to begin, of which a wait in its context would be the end. Call without a gate.
pub(crate) fn pay_before_capture() {
    if owing().is_some() && rule_holds(Rule::CapturePaysFirst) {
        goes_to(ANY_STREAM);
    }
}

/// As `pay`, if it is this context that owes.
pub(crate) fn pay_first(context: &'static Context) {
    if owing().is_some_and(|owing| eq(owing, context)) {
        pay(context);
    }
}

/// The context may be about to end. Perhaps it only loses a reference.
pub(crate) fn context_may_end(context: &'static Context) {
    let _gate = lock(&context.gate);
    pay_first(context);
}

/// Whatever is owed is paid: what comes may be unseen.
pub(crate) fn pay_all() {
    if rule_holds(Rule::BlindSpotPays) {
        goes_to(ANY_STREAM);
    }
}

/// The stream is about to be destroyed: another one may get its handle, and does not come behind its work.
pub(crate) fn stream_ends(stream: StreamHandle) {
    if LEDGER.sole.is(stream as u64) && rule_holds(Rule::EndedStreamPays) {
        goes_to(ANY_STREAM);
    }
}

/// The barrier that is being made in this context: orders all later work behind it, at once or when it is due. Call with the
/// gate held, between its record and its being filed.
#[inline]
pub(crate) fn order_later_work(
    thread: &Thread,
    context: &'static Context,
    event: &EventRef,
    seen: SeenAll,
) -> CuResult {
    if may_put_off(context) {
        OWES.store((context as *const Context).cast_mut(), Ordering::SeqCst);
        widen(Rule::OtherStreamPays);
        if LEDGER.may_put_off() {
            return Ok(());
        }
    }
    api::ctx_wait_event(context.handle, event.handle())?;
    owes_no_more(context);
    LEDGER.wait_is_in(seen, thread.lane());
    Ok(())
}

#[inline]
fn may_put_off(context: &Context) -> bool {
    LEDGER.may_put_off() && !across::is_promised() && LEDGER.exclusive.is_exclusive(context.id)
}

//! What a submission owes to the barriers before it, before it is made (docs/ordering.md 2). While one stream is all there is, its
//! work comes behind a barrier by the order of the stream; before anything goes to another one, the wait that the barrier put
//! off is put in (`owed_wait`). Where several threads submit to several streams, each stream waits for itself, before it gets
//! more.

use cachealloc_core::order::{ANY_STREAM, Admission, BarrierNumber, Lane};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{
    LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, LaunchAttribute, LaunchConfig, STREAM_PER_THREAD,
    StreamHandle,
};
use crate::lock::lock;
use crate::ordering::deferred_wait::{
    clear_deferred, deferred_event, deferring_context, flush, has_deferred, hold_context,
    submit_wait,
};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::{Behind, Thread};

/// A call is about to submit to this stream, as `named` says it, or to `ANY_STREAM`. Behind its begin mark, if it has one, and
/// before the real call.
#[inline(always)]
pub(crate) fn before_submit(stream: u64) {
    if !LEDGER.deferral.can_proceed(stream) {
        admit(stream);
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
        before_submit_unknown();
    }
}

/// Whatever is owed is paid: what comes may be unseen.
pub(crate) fn flush_all() {
    if rule_holds(Rule::BlindSpotPays) {
        before_submit_unknown();
    }
}

/// The stream is about to be destroyed: another one may get its handle, and does not come behind its work.
pub(crate) fn stream_ends(stream: StreamHandle) {
    let has_deferred =
        LEDGER.deferral.is(stream as u64) || LEDGER.deferral.is_deferred_per_stream();
    if has_deferred && rule_holds(Rule::EndedStreamPays) {
        before_submit_unknown();
    }
}

/// As `before_submit` for a caller without a begin mark. While it asks it has one: else the streams might be forgotten between
/// its finding that nothing is owed and its saying so, and others would be admitted before what is owed since is paid.
fn before_submit_unknown() {
    if !LEDGER.deferral.is(ANY_STREAM) {
        LEDGER.begin(false, Lane::Shared);
        admit(ANY_STREAM);
        LEDGER.end(false, Lane::Shared);
    }
}

#[cold]
fn admit(stream: u64) {
    // What a forked child has of our locks may be held for ever, and its calls fail.
    if bypass::is_switched_off() && rule_holds(Rule::ForkedChildOwesNothing) {
        return;
    }
    let admitted = if stream == STREAM_PER_THREAD as u64 { ANY_STREAM } else { stream };
    loop {
        let asked = LEDGER.deferral.admission(admitted);
        match (asked, deferring_context()) {
            (Admission::Proceed, _) => return,
            (Admission::FlushDeferred, Some(context)) if stream == ANY_STREAM => flush(context),
            (Admission::FlushDeferred | Admission::WaitOnStream, Some(context)) => {
                if wait_on_stream(context, stream) {
                    return;
                }
            }
            (_, None) => LEDGER.deferral.flush_not_needed(),
        }
    }
}

/// Lets this stream wait for the newest barrier, if the context owes that wait. True: whatever the stream gets comes behind
/// it. Call without a gate.
fn wait_on_stream(context: &'static Context, stream: u64) -> bool {
    let is_default = stream == STREAM_PER_THREAD as u64;
    let known_as = if is_default { own_default_stream() } else { stream };
    // A barrier that is not noted yet is one of a free that has not returned.
    if let Some(number) = context.covers.pending()
        && thread::with(|thread| thread.behind.get()) == Some(behind(context, known_as, number))
    {
        return true;
    }
    // A stream of another context, which has come meanwhile, must not wait for this one (hazard 27).
    let open = hold_context(context).filter(|_| LEDGER.exclusive.is_exclusive(context.id));
    let Some(_open) = open else {
        flush(context);
        return false;
    };
    let mut synced = lock(&context.barrier_lock);
    if !has_deferred(context) {
        return false;
    }
    if let Some((number, event)) = deferred_event(context) {
        let is_behind = synced.is(known_as, number) || !rule_holds(Rule::StreamsWaitForThemselves);
        let wait = || api::stream_wait_event(stream as StreamHandle, event.handle(), 0);
        if is_behind || wait().is_ok() {
            synced.waits(known_as, number);
            thread::with(|thread| thread.behind.set(Some(behind(context, known_as, number))));
            // The others wait when they get work.
            LEDGER.deferral.flushed_per_stream();
            return true;
        }
        submit_wait(context, &event);
    }
    LEDGER.deferral.flushed();
    clear_deferred(context);
    false
}

fn behind(context: &Context, stream: u64, number: BarrierNumber) -> Behind {
    Behind { context_id: context.id, stream, number }
}

/// The default stream of the calling thread, which has the same handle in each. No handle is so large.
fn own_default_stream() -> u64 {
    1 << 63 | thread::with(Thread::number) as u64
}

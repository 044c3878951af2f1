//! Obligations of a submission to earlier barriers, before it is made (docs/ordering.md 2). While
//! only one stream has work, the order of the stream puts its work after a barrier. Before anything
//! goes to another stream, the deferred wait of the barrier is submitted (`deferred_wait`). Where
//! several threads submit to several streams, each stream waits before it gets more work.

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

/// Prepares a submission to this stream, as returned by `named`, or to `ANY_STREAM`. Call after the
/// submission was counted as begun, if it is counted, and before the real call.
#[inline(always)]
pub(crate) fn before_submit(stream: u64) {
    if !LEDGER.deferral.can_proceed(stream) {
        admit(stream);
    }
}

/// Returns the stream that a call names by this handle. The default stream of a thread is never
/// admitted as the only one, but may wait by itself.
#[inline(always)]
pub(crate) fn named(stream: StreamHandle, per_thread: bool) -> u64 {
    if per_thread && stream == 0 { STREAM_PER_THREAD as u64 } else { stream as u64 }
}

/// Returns the stream of `cuLaunchKernelEx`. A launch that may begin before its predecessor ends is
/// not ordered after the earlier work of the stream.
///
/// # Safety
///
/// `config` must be null, or the program's struct, valid for the call together with its array of
/// attributes.
#[inline(always)]
pub(crate) unsafe fn of_launch(config: *const LaunchConfig, per_thread: bool) -> u64 {
    // SAFETY: the caller guarantees it.
    let Some(config) = (unsafe { config.as_ref() }) else { return ANY_STREAM };
    // SAFETY: as above.
    if config.numAttrs != 0 && unsafe { may_start_early(config) } {
        return ANY_STREAM;
    }
    named(config.hStream as StreamHandle, per_thread)
}

/// # Safety
///
/// `config` must meet the requirements of `of_launch`.
unsafe fn may_start_early(config: &LaunchConfig) -> bool {
    if config.attrs.is_null() || !rule_holds(Rule::ProgrammaticLaunchFlushes) {
        return false;
    }
    let first = config.attrs.cast::<LaunchAttribute>();
    // SAFETY: the caller guarantees it.
    let attributes = unsafe { core::slice::from_raw_parts(first, config.numAttrs as usize) };
    attributes.iter().any(|attribute| {
        attribute.id == LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION && attribute.value[0] as u32 != 0
    })
}

/// Prepares a submission of the library to one of its own streams.
pub(crate) fn goes_to_own() {
    if rule_holds(Rule::LibraryStreamFlushes) {
        before_submit_unknown();
    }
}

/// Submits every deferred wait, before submissions that the library may not see.
pub(crate) fn flush_all() {
    if rule_holds(Rule::UntrackedSubmissionFlushes) {
        before_submit_unknown();
    }
}

/// Prepares the end of a stream: another stream may get its handle, and is not ordered after its
/// work.
pub(crate) fn stream_ends(stream: StreamHandle) {
    let has_deferred =
        LEDGER.deferral.is(stream as u64) || LEDGER.deferral.is_deferred_per_stream();
    if has_deferred && rule_holds(Rule::EndedStreamFlushes) {
        before_submit_unknown();
    }
}

/// Prepares a submission of a caller that is not counted as begun. It is counted during the check.
/// Otherwise the streams might be forgotten between the check, which found no deferred wait, and
/// the publication of its result. Other streams would then be admitted before a wait that was
/// deferred since is submitted.
fn before_submit_unknown() {
    if !LEDGER.deferral.is(ANY_STREAM) {
        LEDGER.begin(false, Lane::Shared);
        admit(ANY_STREAM);
        LEDGER.end(false, Lane::Shared);
    }
}

#[cold]
fn admit(stream: u64) {
    // In a forked child, the library's locks may be held forever, and its calls fail.
    if bypass::is_switched_off() && rule_holds(Rule::ForkedChildFlushesNothing) {
        return;
    }
    let admitted = if stream == STREAM_PER_THREAD as u64 { ANY_STREAM } else { stream };
    loop {
        let asked = LEDGER.deferral.admission(admitted);
        match (asked, deferring_context()) {
            (Admission::Proceed, _) => return,
            (Admission::FlushDeferred, Some(context)) if stream == ANY_STREAM => {
                if !flush(context) {
                    return;
                }
            }
            (Admission::FlushDeferred | Admission::WaitOnStream, Some(context)) => {
                if wait_on_stream(context, stream) {
                    return;
                }
            }
            (_, None) => LEDGER.deferral.flush_not_needed(),
        }
    }
}

/// Makes this stream wait for the newest barrier, if the context has a deferred wait. Returns
/// `true` if whatever the stream gets is ordered after the barrier, or the driver refuses the wait.
/// The caller must hold no barrier lock.
fn wait_on_stream(context: &'static Context, stream: u64) -> bool {
    let is_default = stream == STREAM_PER_THREAD as u64;
    let known_as = if is_default { own_default_stream() } else { stream };
    // A barrier that is not noted yet belongs to a free that has not returned.
    if let Some(number) = context.covers.pending()
        && thread::with(|thread| thread.behind.get()) == Some(behind(context, known_as, number))
    {
        return true;
    }
    // A stream of another context, which appeared meanwhile, must not wait for this one (hazard
    // 27).
    let open = hold_context(context).filter(|_| LEDGER.exclusive.is_exclusive(context.id));
    let Some(_open) = open else {
        return !flush(context);
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
        if !submit_wait(context, &event) {
            return true;
        }
    }
    LEDGER.deferral.flushed();
    clear_deferred(context);
    false
}

fn behind(context: &Context, stream: u64, number: BarrierNumber) -> Behind {
    Behind { context_id: context.id, stream, number }
}

/// Returns an id for the default stream of the calling thread, which has the same handle in each
/// thread. No handle is that large.
fn own_default_stream() -> u64 {
    1 << 63 | thread::with(Thread::number) as u64
}

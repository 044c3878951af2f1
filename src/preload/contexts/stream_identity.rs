//! Identity of the stream of a handle: its unique id and its context. Handles are reused, so the
//! library asks the driver. A thread that continues with one stream asks once, until a stream or a
//! context of the process may end.

use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{ContextHandle, CuResult, STREAM_PER_THREAD, StreamHandle};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::thread::{KnownStream, Thread};

/// Counts the calls that may have ended a stream.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// A stream that exists.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub handle: StreamHandle,
    /// Unique id of the stream, or the handle where the driver has no ids.
    pub id: u64,
    /// `None` if the driver does not report the context.
    pub context: Option<&'static Context>,
}

/// Notes that a stream, or a context with its streams, may be about to end. Call before the driver
/// ends it.
pub(crate) fn may_end() {
    if rule_holds(Rule::EndedStreamIsForgotten) {
        ENDS.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns the stream of this handle, or the driver's code if no stream has it.
#[inline]
pub(crate) fn of(thread: &Thread, handle: StreamHandle) -> CuResult<Stream> {
    match known(thread, handle, |id| api::ctx_get_id(0) == Ok(id)) {
        Some(KnownStream { handle, id, context_id, .. }) => {
            Ok(Stream { handle, id, context: contexts::find(context_id) })
        }
        None => learn(thread, handle),
    }
}

/// Returns the id of the stream, for a caller that knows which context is current.
#[inline]
pub(crate) fn id_in(
    thread: &Thread,
    handle: StreamHandle,
    current: &'static Context,
) -> CuResult<u64> {
    match known(thread, handle, |id| current.id == id) {
        Some(known) => Ok(known.id),
        None => Ok(learn(thread, handle)?.id),
    }
}

/// Returns the context that a stream belongs to.
pub(crate) fn context_of(handle: StreamHandle) -> Option<&'static Context> {
    told_or_current(api::stream_get_ctx(handle))
}

fn told_or_current(told: CuResult<ContextHandle>) -> Option<&'static Context> {
    told.map_or_else(|_| lookup::current(), lookup::of_handle).ok()
}

/// Returns the stream that the thread used last, if it has this handle. The default streams are
/// those of the current context.
#[inline]
fn known(
    thread: &Thread,
    handle: StreamHandle,
    is_current: impl FnOnce(u64) -> bool,
) -> Option<KnownStream> {
    // Where calls bypass the hooks, the end of a stream may bypass them too. Where a context was
    // lost, the driver refuses its streams.
    let is_still = |known: &KnownStream| {
        known.handle == handle
            && known.ends == ENDS.load(Ordering::Acquire)
            && LEDGER.elision.is_allowed()
            && bypass::is_fast_path()
            && (handle > STREAM_PER_THREAD || is_current(known.context_id))
    };
    thread.stream.get().filter(is_still)
}

/// Asks the driver and stores the result. An identity is not stored if the driver does not report
/// it, or if green contexts exist: the end of one leaves its streams as handles that refer to
/// nothing.
#[cold]
fn learn(thread: &Thread, handle: StreamHandle) -> CuResult<Stream> {
    let ends = ENDS.load(Ordering::Acquire);
    let id = api::stream_get_id(handle)?;
    let told = api::stream_get_ctx(handle);
    let context = told_or_current(told);
    let lasts = told.is_ok()
        && api::has_stream_ids()
        && !LEDGER.exclusive.has_observed(Observer::GreenContext);
    let known = |context: &Context| KnownStream { handle, id, context_id: context.id, ends };
    thread.stream.set(context.filter(|_| lasts).map(known));
    Ok(Stream { handle, id, context })
}

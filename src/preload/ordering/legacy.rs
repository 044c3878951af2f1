//! The legacy stream and the blocking ones (hazard 64): work that a blocking stream is given comes behind
//! what the legacy stream was given before, and a wait for the stream is then one for both. A free in stream
//! order is such work natively. Ours is an event, and recording one gives the stream nothing (measured).

use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{EventHandle, STREAM_LEGACY, STREAM_NON_BLOCKING, StreamHandle};
use crate::process::thread::Thread;

/// Twice the number of times that the legacy stream was seen to have got more; one more: it has since.
static LEGACY: AtomicU64 = AtomicU64::new(0);

/// The legacy stream has got work: called behind the call, so that what knows of the call finds it noted.
#[inline(always)]
pub(crate) fn got_work() {
    if LEGACY.load(Ordering::SeqCst) & 1 == 0 {
        LEGACY.fetch_or(1, Ordering::SeqCst);
    }
}

/// How often it has got more.
fn count() -> u64 {
    let counted = |seen: u64| (seen & 1 == 1).then_some(seen + 1);
    let seen = match LEGACY.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) {
        Ok(before) => before + 1,
        Err(even) => even,
    };
    seen / 2
}

/// Gives the stream the wait for an event that was recorded there, unless it is behind all legacy work.
pub(crate) fn join(thread: &Thread, stream: StreamHandle, stream_id: u64, event: EventHandle) {
    let count = count();
    let joined = (stream_id, count);
    if count == 0 || stream <= STREAM_LEGACY || thread.joined_legacy.get() == joined {
        return;
    }
    let blocking =
        api::stream_get_flags(stream).is_ok_and(|flags| flags & STREAM_NON_BLOCKING == 0);
    let done = match blocking && rule_holds(Rule::FreeJoinsLegacy) {
        true => api::relaxed(|| api::stream_wait_event(stream, event, 0)),
        false => Ok(()),
    };
    // A handle may be another stream's by the next free.
    if done.is_ok() && api::has_stream_ids() {
        thread.joined_legacy.set(joined);
    }
}

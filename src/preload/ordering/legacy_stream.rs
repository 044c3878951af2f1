//! What a free in stream order puts its stream behind (hazards 64, 65 and 68): natively it is work there, which
//! comes behind what the legacy stream was given, and behind what the context was told to wait for, and a wait
//! for the stream is then one for these too. Ours is an event, and recording one gives the stream nothing
//! (measured): a wait for it does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{CuResult, STREAM_LEGACY, STREAM_NON_BLOCKING, StreamHandle};
use crate::state::thread::Thread;

/// Twice the number of times that there was seen to be more; one more: there is since.
static MORE: AtomicU64 = AtomicU64::new(0);
/// Whether the program has made a context wait: that concerns streams of all kinds.
static CONTEXTS_WAIT: AtomicBool = AtomicBool::new(false);

/// The legacy stream has got work: called behind the call, so that what knows of the call finds it noted.
#[inline(always)]
pub(crate) fn note_legacy_work() {
    if MORE.load(Ordering::SeqCst) & 1 == 0 {
        MORE.fetch_or(1, Ordering::SeqCst);
    }
}

/// The program has made a context wait for an event.
pub(crate) fn context_waits() {
    CONTEXTS_WAIT.store(true, Ordering::SeqCst);
    MORE.fetch_or(1, Ordering::SeqCst);
}

/// How often there was more.
fn count() -> u64 {
    let counted = |seen: u64| (seen & 1 == 1).then_some(seen + 1);
    let seen = match MORE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) {
        Ok(before) => before + 1,
        Err(even) => even,
    };
    seen / 2
}

/// What the stream is to be put behind, if it is not already. On the legacy stream a free puts it behind nothing
/// (measured).
pub(crate) struct Due {
    stream: StreamHandle,
    joined: (u64, u64),
}

/// For a free on this stream. None: there is nothing.
pub(crate) fn due(thread: &Thread, stream: StreamHandle, stream_id: u64) -> Option<Due> {
    let count = count();
    let joined = (stream_id, count);
    let none = count == 0 || stream <= STREAM_LEGACY || thread.joined.get() == joined;
    (!none).then_some(Due { stream, joined })
}

/// Gives the stream, by `give`, something that comes behind what it is due to.
pub(crate) fn join(
    thread: &Thread,
    Due { stream, joined }: Due,
    give: impl FnOnce(StreamHandle) -> CuResult,
) {
    let blocking =
        || api::stream_get_flags(stream).is_ok_and(|flags| flags & STREAM_NON_BLOCKING == 0);
    let context_waits = CONTEXTS_WAIT.load(Ordering::SeqCst) && rule_holds(Rule::FreeJoinsContext);
    let behind_more = context_waits || (rule_holds(Rule::FreeJoinsLegacy) && blocking());
    let done = if behind_more { api::relaxed(|| give(stream)) } else { Ok(()) };
    // A handle may be another stream's by the next free.
    if done.is_ok() && api::has_stream_ids() {
        thread.joined.set(joined);
    }
}

//! Order of a free on its stream relative to the legacy stream (hazards 64, 65 and 68). On the
//! plain driver the free is work on the stream. It is ordered after earlier legacy-stream work, and
//! after what the context was made to wait for, and a wait for the stream includes these too. The
//! library records an event instead, which gives the stream nothing (measured): a wait for the
//! event does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{CuResult, STREAM_LEGACY, STREAM_NON_BLOCKING, StreamHandle};
use crate::state::thread::Thread;

/// Twice the number of times that more work was seen, plus one if there has been more since.
pub(crate) static MORE: AtomicU64 = AtomicU64::new(0);
/// Whether the program has made a context wait: that concerns streams of all kinds.
static CONTEXTS_WAIT: AtomicBool = AtomicBool::new(false);

/// Notes that the legacy stream has got work. Call after the real call, so that a thread that
/// knows of that call finds it noted.
#[inline(always)]
pub(crate) fn note_legacy_work() {
    if MORE.load(Ordering::SeqCst) & 1 == 0 {
        MORE.fetch_or(1, Ordering::SeqCst);
    }
}

/// Notes that the program has made a context wait for an event.
pub(crate) fn context_waits() {
    CONTEXTS_WAIT.store(true, Ordering::SeqCst);
    MORE.fetch_or(1, Ordering::SeqCst);
}

/// Returns how many times there was more work.
fn count() -> u64 {
    let counted = |seen: u64| (seen & 1 == 1).then_some(seen + 1);
    let seen = match MORE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) {
        Ok(before) => before + 1,
        Err(even) => even,
    };
    seen / 2
}

/// Work that the stream must be ordered after, if it is not already. On the legacy stream, a free
/// orders it after nothing (measured).
pub(crate) struct Due {
    stream: StreamHandle,
    joined: (u64, u64),
}

/// Returns the work due for a free on this stream, or `None` if there is none.
pub(crate) fn due(thread: &Thread, stream: StreamHandle, stream_id: u64) -> Option<Due> {
    let count = count();
    let joined = (stream_id, count);
    let none = count == 0 || stream <= STREAM_LEGACY || thread.joined.get() == joined;
    (!none).then_some(Due { stream, joined })
}

/// Gives the stream, by `give`, something that is ordered after the work it is due to wait for.
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

//! The capturing streams (docs/ordering.md 5). While there is one, no barrier is made anywhere.
//!
//! Any thread may ask the driver whether a stream of the set still captures, but not at any time.
//! While Begin or End runs, the result could be that of before or after it, and the driver reads
//! what End is taking apart: such a stream counts as capturing, without a query. A per-thread
//! default stream has one handle in all threads: a query is meaningful only in the thread that
//! began the capture, with its context current; for all other threads the stream counts as
//! capturing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_core::order::{Capture, Captures};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{
    CAPTURE_STATUS_NONE, CuError, CuResult, STREAM_LEGACY, STREAM_PER_THREAD, StreamHandle,
};
use crate::gate;
use crate::gate::Condition;
use crate::graphs::{open_captures, participants, pools};
use crate::lock::lock;
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::Thread;

struct Set {
    captures: Captures,
    /// Streams on which a thread is inside Begin or End.
    changing: Vec<StreamHandle>,
    /// Threads that began captures of per-thread default streams: stream id, thread number.
    owners: Vec<(u64, usize)>,
}

static SET: Mutex<Set> =
    Mutex::new(Set { captures: Captures::new(), changing: Vec::new(), owners: Vec::new() });
/// Number of times the set became empty or non-empty.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Returns whether a stream captures. Queries the driver for each: a capture may have ended by an
/// error that was not reported to the library.
#[inline]
pub(crate) fn any() -> bool {
    maybe() && still_any()
}

/// Returns whether a stream may capture, without a query. May stay `true` for a while after the
/// last capture ended.
#[inline]
pub(crate) fn maybe() -> bool {
    gate::has(Condition::Captures)
}

/// Notes that the thread is about to submit during a capture, on this stream if one is named.
pub(crate) fn note_submission(thread: &Thread, stream: Option<StreamHandle>) {
    thread.captured_before.set(None);
    thread.submits_on.set(stream.map(|stream| (CHANGES.load(Ordering::Acquire), stream)));
}

/// Returns whether the submission being made by this thread certainly belongs to no capture. Call
/// during a capture. If a stream has captured ever since the note, the note belongs to this call:
/// each call makes one then.
pub(crate) fn is_beside(thread: &Thread) -> bool {
    let Some((changes, stream)) = thread.submits_on.get() else { return false };
    // The legacy default stream never captures; querying it may end a capture.
    let legacy = || stream <= STREAM_LEGACY;
    changes == CHANGES.load(Ordering::Acquire) && (legacy() || !is_capturing(stream))
}

/// Runs the real Begin of a capture in this mode; `None` for a kind of capture that gets no memory.
/// The caller must hold the barrier lock.
pub(crate) fn begin(
    stream: StreamHandle,
    context: &'static Context,
    mode: Option<u32>,
    real: impl FnOnce() -> CuResult,
) -> CuResult {
    // A stream that captures already keeps its capture, and its id must not be read.
    let capture = if is_capturing(stream) { None } else { identify(stream, context.id) };
    // If the driver has no id, the capture must be recorded all the same.
    let capture = capture.or_else(|| unidentified(stream, context.id));
    let _changing = Changing::new(stream, capture);
    let code = real();
    match (code, capture, mode) {
        (Ok(()), Some(capture), Some(mode)) => {
            open_captures::begun(stream, capture.stream_id, context, mode);
        }
        // A handle that means no stream would seem to capture from now on.
        (Err(_), Some(capture), _) if rule_holds(Rule::RefusedBeginCapturesNothing) => {
            stream_destroyed(capture.stream_id);
        }
        _ => {}
    }
    code
}

/// Runs the real End of a capture, which may fail and end it nevertheless.
pub(crate) fn end(stream: StreamHandle, real: impl FnOnce() -> CuResult) -> CuResult {
    open_captures::ending(stream, || {
        let _changing = Changing::new(stream, None);
        real()
    })
}

/// Runs the real end of a stream, which ends its capture, if the driver agrees. The capture is
/// found by its handle before the call, because afterwards the handle may mean another stream.
/// Reading the id of a capturing stream ends the capture (900, measured).
pub(crate) fn destroy(stream: StreamHandle, real: impl FnOnce() -> CuResult) -> CuResult {
    let set = lock(&SET);
    let captures = |capture: &&Capture| capture.stream_handle == stream as u64;
    let id = set.captures.iter().find(captures).map(|capture| capture.stream_id);
    drop(set);
    let _changing = Changing::new(stream, None);
    let member = open_captures::leaves(stream);
    if !rule_holds(Rule::RefusedStreamCaptures) {
        id.iter().for_each(|id| stream_destroyed(*id));
    }
    let code = open_captures::ending(stream, real);
    if code.is_ok() {
        if let Some(id) = id {
            stream_destroyed(id);
            pools::note_graph_ended();
        }
    } else if let Some(member) = member {
        open_captures::waited(member);
    }
    code
}

fn stream_destroyed(id: u64) {
    let mut set = lock(&SET);
    set.captures.stream_destroyed(id);
    set.publish();
}

/// Drops the captures of a thread that has ended: its default stream ends with it.
pub(crate) fn thread_ended(thread: &Thread) {
    if !maybe() {
        return;
    }
    let mut set = lock(&SET);
    let Set { captures, owners, .. } = &mut *set;
    for (id, _) in owners.iter().filter(|(_, owner)| *owner == thread.number()) {
        captures.stream_destroyed(*id);
    }
    set.publish();
    drop(set);
    open_captures::let_go_dropped();
}

/// Drops the captures of a context that has ended with all its streams.
pub(crate) fn context_destroyed(context: &Context) {
    let mut set = lock(&SET);
    set.captures.context_destroyed(context.id);
    set.publish();
    drop(set);
    open_captures::let_go_dropped();
}

/// Drops the captures on the streams of a green context that has ended.
pub(crate) fn green_context_destroyed() {
    if maybe() {
        lock(&SET).drop_what_has_ended();
        open_captures::let_go_dropped();
    }
    // Even if another thread has asked about the captures before this one, and dropped them.
    pools::note_graph_ended();
}

/// Returns whether this stream captures (`true` also if the driver does not report it). For the
/// stream of a call of the program; `any` queries the others.
pub(crate) fn is_capturing(stream: StreamHandle) -> bool {
    match api::stream_is_capturing(stream) {
        Ok(status) => status != CAPTURE_STATUS_NONE,
        // Its capture has ended with its green context (documented), and the program may never
        // destroy the stream.
        Err(CuError::STREAM_DETACHED) => !rule_holds(Rule::DetachedIsOver),
        Err(_) => true,
    }
}

#[cold]
fn still_any() -> bool {
    let mut set = lock(&SET);
    set.drop_what_has_ended();
    !set.captures.is_empty()
}

impl Set {
    fn drop_what_has_ended(&mut self) {
        let Set { captures, changing, owners } = self;
        captures.keep(|capture| {
            let stream = capture.stream_handle as StreamHandle;
            changing.contains(&stream) || !may_ask(owners, capture) || is_capturing(stream)
        });
        self.publish();
    }

    fn publish(&mut self) {
        let Set { captures, owners, .. } = self;
        open_captures::keep(|id| captures.iter().any(|capture| capture.stream_id == id));
        owners.retain(|(id, _)| captures.iter().any(|capture| capture.stream_id == *id));
        let any = !captures.is_empty();
        if maybe() != any {
            gate::change(Condition::Captures, any);
            CHANGES.fetch_add(1, Ordering::AcqRel);
            if !any {
                participants::forget();
            }
        }
    }
}

fn may_ask(owners: &[(u64, usize)], capture: &Capture) -> bool {
    let owner = owners.iter().find(|(id, _)| *id == capture.stream_id);
    // The handle means another stream while another context is current.
    let here = || api::ctx_get_id(0) == Ok(capture.context_id);
    owner.is_none_or(|(_, owner)| *owner == thread::with(Thread::number) && here())
}

/// Marks Begin or End as running on this stream.
struct Changing(StreamHandle);

impl Changing {
    fn new(stream: StreamHandle, begins: Option<Capture>) -> Changing {
        let mut set = lock(&SET);
        set.changing.push(stream);
        if let Some(capture) = begins {
            if stream == STREAM_PER_THREAD {
                let owner = thread::with(Thread::number);
                set.owners.push((capture.stream_id, owner));
                thread::watch();
            }
            set.captures.begin(capture);
            set.publish();
        }
        Changing(stream)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut set = lock(&SET);
        if let Some(index) = set.changing.iter().position(|stream| *stream == self.0) {
            set.changing.swap_remove(index);
        }
        set.drop_what_has_ended();
    }
}

/// Returns a capture for a stream without an id from the driver that is not in the set yet.
fn unidentified(stream: StreamHandle, context_id: u64) -> Option<Capture> {
    /// Above every id.
    const BY_HANDLE: u64 = 1 << 63;
    let stream_handle = stream as u64;
    let known = lock(&SET).captures.iter().any(|capture| capture.stream_handle == stream_handle);
    (!known).then_some(Capture { stream_id: BY_HANDLE | stream_handle, stream_handle, context_id })
}

/// Returns the capture of a stream. Called before the capture begins; see `destroy`. Returns `None`
/// if the stream cannot be identified; its capture is then not tracked (the real call will fail).
fn identify(stream: StreamHandle, context_id: u64) -> Option<Capture> {
    let stream_id = api::stream_get_id(stream).ok()?;
    Some(Capture { stream_id, stream_handle: stream as u64, context_id })
}

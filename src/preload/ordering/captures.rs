//! Which streams capture now (docs/ordering.md 5). While there is one, no barrier is made anywhere.
//!
//! Any thread may ask the driver whether a stream of the set still captures, but not everything
//! may be asked at any time. While Begin or End runs, the answer would be of before or after it,
//! and the driver reads what End is taking apart: such a stream counts as capturing, unasked. The
//! calling thread's own default stream has one handle for all threads: its answer means something
//! in the thread that began, while that context is current; to all others it captures.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::order::{Capture, Captures};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::Context;
use crate::driver::api;
use crate::driver::sys::{
    CAPTURE_STATUS_NONE, CuResult, STREAM_LEGACY, STREAM_PER_THREAD, SUCCESS, StreamHandle,
};
use crate::graphs::{open_captures, participants, pools};
use crate::lock::lock;
use crate::process::bypass;
use crate::process::thread::{self, Thread};

struct Set {
    captures: Captures,
    /// Streams on which a thread is inside Begin or End.
    changing: Vec<StreamHandle>,
    /// Who began the captures of per-thread default streams: stream id, thread number.
    owners: Vec<(u64, usize)>,
}

static SET: Mutex<Set> =
    Mutex::new(Set { captures: Captures::new(), changing: Vec::new(), owners: Vec::new() });
/// False only while the set is empty.
static ANY: AtomicBool = AtomicBool::new(false);

/// How often the set became empty, or ceased to be.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Whether some stream captures. Asks the driver anew about each: a capture may have ended by an
/// error that nobody told us of.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Acquire) && still_any()
}

/// As `any`, without asking: may be true for a while after the last capture ended.
#[inline]
pub fn maybe() -> bool {
    ANY.load(Ordering::Acquire)
}

/// The thread is about to submit, while something captures; the stream, if one is named.
pub fn note_submission(thread: &Thread, stream: Option<StreamHandle>) {
    thread.submits_on.set(stream.map(|stream| (CHANGES.load(Ordering::Acquire), stream)));
}

/// Whether the submission that this thread makes is known to be none of a capture's. Something captures.
/// If it has all the time since the note, that is of this call: each one makes it then.
pub fn is_beside(thread: &Thread) -> bool {
    let Some((changes, stream)) = thread.submits_on.get() else { return false };
    // The legacy default stream never captures; to ask it may end a capture.
    let legacy = || stream <= STREAM_LEGACY;
    changes == CHANGES.load(Ordering::Acquire) && (legacy() || !is_capturing(stream))
}

/// The real Begin of a capture, in this mode; None: of a kind that is given no memory. Call inside the exclusive gate.
pub fn begin(
    stream: StreamHandle,
    context: &'static Context,
    mode: Option<u32>,
    real: impl FnOnce() -> CuResult,
) -> CuResult {
    // One that captures already keeps its capture, and must not be asked for its id.
    let capture = if is_capturing(stream) { None } else { identify(stream, context.id) };
    // Where the driver did not say, the capture must be known all the same.
    let capture = capture.or_else(|| unidentified(stream, context.id));
    let _changing = Changing::new(stream, capture);
    let code = real();
    if let (SUCCESS, Some(capture), Some(mode)) = (code, capture, mode) {
        open_captures::begun(stream, capture.stream_id, context, mode);
    }
    code
}

/// The real End of a capture, which may fail and end it nevertheless.
pub fn end(stream: StreamHandle, real: impl FnOnce() -> CuResult) -> CuResult {
    open_captures::ending(stream, || {
        let _changing = Changing::new(stream, None);
        real()
    })
}

/// The real end of a stream, whose capture goes with it, if the driver agrees. Found by its handle before
/// that may mean another stream; asking one that captures for its id ends the capture (900, measured).
pub fn destroy(stream: StreamHandle, real: impl FnOnce() -> CuResult) -> CuResult {
    let set = lock(&SET);
    let captures = |capture: &&Capture| capture.stream_handle == stream as u64;
    let id = set.captures.iter().find(captures).map(|capture| capture.stream_id);
    drop(set);
    let _changing = Changing::new(stream, None);
    let member = open_captures::leaves(stream);
    if !rule_holds(Rule::RefusedStreamCaptures) {
        id.iter().for_each(|id| stream_destroyed(*id));
    }
    let code = real();
    if code == SUCCESS {
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

/// The thread's own default stream goes with it, and what it captured.
pub fn thread_ended(thread: &Thread) {
    if !maybe() {
        return;
    }
    let mut set = lock(&SET);
    let Set { captures, owners, .. } = &mut *set;
    for (id, _) in owners.iter().filter(|(_, owner)| *owner == thread.number()) {
        captures.stream_destroyed(*id);
    }
    set.publish();
}

/// The context and all its streams are gone.
pub fn context_destroyed(context: &Context) {
    let mut set = lock(&SET);
    set.captures.context_destroyed(context.id);
    set.publish();
}

/// Whether this stream captures (`true` also where the driver will not say). Of the program's own
/// stream, in a call that means it; of others `any` asks.
pub fn is_capturing(stream: StreamHandle) -> bool {
    let mut status = CAPTURE_STATUS_NONE;
    api::stream_is_capturing(stream, &mut status) != SUCCESS || status != CAPTURE_STATUS_NONE
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
        if ANY.swap(any, Ordering::AcqRel) != any {
            CHANGES.fetch_add(1, Ordering::AcqRel);
            bypass::note_captures(any);
            if !any {
                participants::forget();
            }
        }
    }
}

fn may_ask(owners: &[(u64, usize)], capture: &Capture) -> bool {
    let owner = owners.iter().find(|(id, _)| *id == capture.stream_id);
    // With another context current the handle means another stream.
    let here = || {
        let mut id = 0;
        api::ctx_get_id(0, &mut id) == SUCCESS && id == capture.context_id
    };
    owner.is_none_or(|(_, owner)| *owner == thread::with(Thread::number) && here())
}

/// Begin or End is under way on a stream.
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

/// A stream without an id of the driver's, and not in the set yet.
fn unidentified(stream: StreamHandle, context_id: u64) -> Option<Capture> {
    /// Above every id.
    const BY_HANDLE: u64 = 1 << 63;
    let stream_handle = stream as u64;
    let known = lock(&SET).captures.iter().any(|capture| capture.stream_handle == stream_handle);
    (!known).then_some(Capture { stream_id: BY_HANDLE | stream_handle, stream_handle, context_id })
}

/// Asked before the capture begins; see `destroy`. `None`: the stream cannot be told
/// apart, and its capture is watched by nobody (the real call will fail).
fn identify(stream: StreamHandle, context_id: u64) -> Option<Capture> {
    let mut stream_id = 0;
    (api::stream_get_id(stream, &mut stream_id) == SUCCESS).then_some(Capture {
        stream_id,
        stream_handle: stream as u64,
        context_id,
    })
}

//! Which streams capture now (DESIGN 3.4). While there is one, no barrier is made anywhere.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_core::order::{Begun, Capture, Captures};

use crate::driver::api;
use crate::driver::sys::{CAPTURE_STATUS_NONE, ContextHandle, SUCCESS, StreamHandle};
use crate::runtime::contexts::{self, Context};
use crate::runtime::lock;

static SET: Mutex<Captures> = Mutex::new(Captures::new());
/// False only while the set is empty.
static ANY: AtomicBool = AtomicBool::new(false);

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

/// A stream begins to capture. Call inside the exclusive gate, before the real call. `None`: the
/// stream cannot be told apart, and the capture is watched by nobody (the real call will fail).
pub fn begin(stream: StreamHandle, context: &Context) -> Option<Begun> {
    let capture = identify(stream, context.id)?;
    let mut set = lock(&SET);
    ANY.store(true, Ordering::Release);
    Some(set.begin(capture))
}

/// The real End was called, or the real Begin failed: the stream leaves the set if the driver
/// says that it no longer captures.
pub fn ended(_stream: StreamHandle) {
    still_any();
}

/// The stream is about to be destroyed; its capture goes with it. Found by its handle: asking a
/// stream that captures for its id ends the capture (900, measured).
pub fn stream_destroyed(stream: StreamHandle) {
    let mut set = lock(&SET);
    let id = set.iter().find(|capture| capture.stream_handle == stream as u64);
    if let Some(id) = id.map(|capture| capture.stream_id) {
        set.stream_destroyed(id);
        ANY.store(!set.is_empty(), Ordering::Release);
    }
}

/// The context and all its streams are gone.
pub fn context_destroyed(context: &Context) {
    let mut set = lock(&SET);
    set.context_destroyed(context.id);
    ANY.store(!set.is_empty(), Ordering::Release);
}

/// Whether this stream captures (`true` also where the driver will not say).
pub fn is_capturing(stream: StreamHandle) -> bool {
    let mut status = CAPTURE_STATUS_NONE;
    api::stream_is_capturing(stream, &mut status) != SUCCESS || status != CAPTURE_STATUS_NONE
}

/// The context that a stream belongs to.
pub fn context_of(stream: StreamHandle) -> Option<&'static Context> {
    let mut handle: ContextHandle = 0;
    match api::stream_get_ctx(stream, &mut handle) {
        SUCCESS => contexts::of_handle(handle).ok(),
        _ => contexts::current().ok(),
    }
}

#[cold]
fn still_any() -> bool {
    let mut set = lock(&SET);
    set.keep(|capture| is_capturing(capture.stream_handle as StreamHandle));
    ANY.store(!set.is_empty(), Ordering::Release);
    !set.is_empty()
}

/// Asked before the capture begins; see `stream_destroyed`.
fn identify(stream: StreamHandle, context_id: u64) -> Option<Capture> {
    let mut stream_id = 0;
    (api::stream_get_id(stream, &mut stream_id) == SUCCESS).then_some(Capture {
        stream_id,
        stream_handle: stream as u64,
        context_id,
    })
}

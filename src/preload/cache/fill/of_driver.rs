//! Fills of memory that the driver serves in stream order: of a pool of the program's own, or of a
//! default pool that the library has left to it.
//!
//! Only the driver knows which work uses such memory, so it is filled on the stream of its request.
//! The program may free it at once by `cuMemFree`, which waits for nothing: the driver assumes that
//! nothing uses the memory. So the free has to come after the fill. If the stream has nothing else
//! to do, the request waits for the fill. Otherwise the free is made in stream order, after an
//! event of the fill.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::fill;
use crate::cache::fill::Contents;
use crate::contexts::stream_identity;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, STREAM_NON_BLOCKING, StreamHandle};
use crate::lock::lock;
use crate::ordering::captures;
use crate::state::contexts::Context;
use crate::state::events::EventRef;

/// Fills that were not complete when the program got the memory, by its address. One whose context
/// has ended stays until its address is used again: looking for such would grow with their number.
static LASTING: Mutex<BTreeMap<u64, Lasting>> = Mutex::new(BTreeMap::new());

struct Lasting {
    context: &'static Context,
    event: EventRef,
}

/// Fills memory on the stream of its request.
pub(super) fn write(contents: Contents, stream: StreamHandle) {
    // In a capture, a query of the legacy stream may end it.
    let is_idle = !captures::maybe() && api::relaxed(|| api::stream_query(stream)).is_ok();
    contents.write_in_order(stream);
    if !rule_holds(Rule::FreeFollowsFill) {
        return;
    }
    let Some(lasting) = record(stream) else {
        // Waiting for the stream is as safe, but may take long.
        let _ = api::relaxed(|| api::stream_synchronize(stream));
        return;
    };
    if is_idle {
        let _ = api::relaxed(|| lasting.event.synchronize());
        return;
    }
    lock(&LASTING).insert(contents.address, lasting);
}

/// Returns an event recorded on the stream, with the stream's context.
fn record(stream: StreamHandle) -> Option<Lasting> {
    let context = stream_identity::context_of(stream)?;
    let event = fill::record_on(context, stream).ok()?;
    Some(Lasting { context, event })
}

/// Forgets the fill of memory that the program frees in stream order, after its own use of it.
pub(super) fn is_freed_in_order(address: u64) {
    lock(&LASTING).remove(&address);
}

/// Frees memory of the driver by `cuMemFree`, which is `real`: in stream order if it is still being
/// filled.
#[cold]
#[inline(never)]
pub(crate) fn free(address: u64, real: impl FnOnce() -> CuResult) -> CuResult {
    let lasting = lock(&LASTING).remove(&address);
    let Some(Lasting { context, event }) = lasting else { return real() };
    let is_complete = || api::relaxed(|| event.query()) != Err(CuError::NOT_READY);
    if event.is_dead() || is_complete() {
        return real();
    }
    // The stream of the request may have ended.
    let free = || {
        let stream = api::stream_create(STREAM_NON_BLOCKING)?;
        let waits = api::stream_wait_event(stream, event.handle(), 0);
        let code = waits.and_then(|()| api::mem_free_async(address, stream));
        let _ = api::stream_destroy(stream);
        code
    };
    api::relaxed(|| context.enter(free)).or_else(|_| {
        let _ = api::relaxed(|| event.synchronize());
        real()
    })
}

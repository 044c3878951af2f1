//! Contents of memory that the program gets (`fill`), and of the bytes past its end (`red_zone`,
//! see `red_zones.rs`). Both expose bugs that caching hides: without the library, fresh memory is
//! often zero, and an overrun does no harm.
//!
//! The library writes them on a stream that it owns, and waits for it. That stream belongs to the
//! context, so its work is ordered after the barrier of the previous free; it waits for no later
//! work of the program. Memory requested in stream order that its stream still uses is filled on
//! that stream, by a submission like the program's own.
//!
//! A stream-ordered request waits for nothing on the plain driver, and the library's stream may
//! come after work that the program ends only after the request: that before another thread's free,
//! or before an event for which it has made the context wait. So the request does not wait for the
//! fill. Its stream does, and every later owner of the memory.

mod of_driver;

use std::sync::Mutex;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_options::Fill;

pub(crate) use of_driver::free as free_driver_memory;

use crate::cache::blocks;
use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuResult, STREAM_NON_BLOCKING, StreamHandle};
use crate::lock::lock;
use crate::ordering::{before_submission, submissions};
use crate::pagemap;
use crate::pagemap::Place;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::thread;

const POISON: u8 = 0xff;
/// Value of the bytes of a red zone.
pub(crate) const ZONE: u8 = 0xa5;

/// Writes the bytes that the program is about to get. `stream` is the stream of the request, if
/// any; without one, the bytes are written when this returns. Errors are ignored: the contents help
/// to find bugs and are not guaranteed.
#[inline]
pub(crate) fn prepare(
    context: &'static Context,
    address: u64,
    bytes: u64,
    stream: Option<StreamHandle>,
) {
    if config::writes_blocks() {
        write(context, Contents { address, bytes, zone_bytes: config::zone_bytes() }, stream);
    }
}

#[cold]
fn write(context: &'static Context, contents: Contents, stream: Option<StreamHandle>) {
    let Contents { address, .. } = contents;
    match stream {
        None => contents.write_now(context),
        Some(stream) if is_in_use(address) => {
            contents.write_in_order(stream);
            if rule_holds(Rule::FillIsAwaited) {
                note_fill(address, stream);
            }
        }
        Some(stream) if !rule_holds(Rule::UnusedIsFilledAtOnce) => contents.write_in_order(stream),
        Some(stream) => write_unused(context, contents, stream),
    }
}

/// Writes memory that no work uses, for a request on this stream.
fn write_unused(context: &'static Context, contents: Contents, stream: StreamHandle) {
    let own = &context.own_streams.writes;
    let submitted = submit_to_own(context, own, |own| _ = contents.write_on(own));
    let is_ordered = |filled: &EventRef| is_ordered_after(stream, contents.address, filled);
    let is_ordered = submitted.as_ref().is_ok_and(is_ordered);
    if !is_ordered || !rule_holds(Rule::FillOutlastsRequest) {
        _ = wait(own, submitted);
    }
}

/// Orders the stream of a request, and all later owners of its memory, after a fill of it. Returns
/// `false` if that is impossible.
fn is_ordered_after(stream: StreamHandle, address: u64, filled: &EventRef) -> bool {
    let Place::Block(block) = pagemap::place(address) else { return false };
    let wait = || {
        before_submission::before_submit(before_submission::named(stream, false));
        api::relaxed(|| api::stream_wait_event(stream, filled.handle(), 0))
    };
    if rule_holds(Rule::StreamWaitsForFill) && submissions::counted(false, wait).is_err() {
        return false;
    }
    if rule_holds(Rule::FillIsAwaited) {
        blocks::is_now_behind(block.context(), block.block, filled);
    }
    true
}

/// Makes later users of the block wait for the fill. Once the block is freed, others may reuse it
/// as soon as the event it was handed out with is complete, so that event must cover the fill.
#[cold]
fn note_fill(address: u64, stream: StreamHandle) {
    let Place::Block(block) = pagemap::place(address) else { return };
    match record_on(block.context(), stream) {
        Ok(event) => blocks::is_now_behind(block.context(), block.block, &event),
        // Waiting for the stream is as safe, but may take long.
        Err(_) => _ = api::relaxed(|| api::stream_synchronize(stream)),
    }
}

/// Returns an event of the context, recorded on a stream of the program.
fn record_on(context: &'static Context, stream: StreamHandle) -> CuResult<EventRef> {
    let event = take_event(context)?;
    api::relaxed(|| context.enter(|| api::event_record(event.handle(), stream)))?;
    Ok(event)
}

fn take_event(context: &'static Context) -> CuResult<EventRef> {
    thread::with(|thread| context.events.take(thread, |body| context.enter(body)))
}

/// Returns whether work may still use a block that the program is about to get on a stream. If none
/// does, the program may free the block at once by `cuMemFree` and get its memory again: the fill
/// must not come after other work of that stream.
#[cold]
fn is_in_use(address: u64) -> bool {
    match pagemap::place(address) {
        Place::Block(block) => lock(&block.context().allocator).is_behind(block.block),
        _ => true,
    }
}

/// Writes the contents of memory from the driver, which has no red zone.
#[cold]
#[inline(never)]
pub(crate) fn prepare_driver_memory(
    context: &'static Context,
    address: u64,
    bytes: u64,
    stream: Option<StreamHandle>,
) {
    let contents = Contents { address, bytes, zone_bytes: 0 };
    match stream {
        Some(stream) => of_driver::write(contents, stream),
        None => contents.write_now(context),
    }
}

/// Notes that the program frees memory of the driver in stream order.
#[inline]
pub(crate) fn driver_memory_is_freed_in_order(address: u64) {
    if config::writes_blocks() {
        of_driver::is_freed_in_order(address);
    }
}

/// A block to be filled, and the zone past its end.
#[derive(Clone, Copy)]
struct Contents {
    address: u64,
    bytes: u64,
    zone_bytes: u64,
}

impl Contents {
    fn write_on(self, stream: StreamHandle) -> CuResult {
        let Contents { address, bytes, zone_bytes } = self;
        let fill = |address, value, bytes: u64| match bytes {
            0 => Ok(()),
            _ => api::memset_d8_async(address, value, bytes as usize, stream),
        };
        let code = match config::get().fill {
            Fill::None => Ok(()),
            Fill::Zero => fill(address, 0, bytes),
            Fill::Poison => fill(address, POISON, bytes),
        };
        code.max(fill(address + bytes, ZONE, zone_bytes))
    }

    /// Writes, and waits for that.
    fn write_now(self, context: &'static Context) {
        _ = on_own_stream(context, &context.own_streams.writes, |own| self.write_on(own));
    }

    /// Writes by a submission like the program's own.
    #[cold]
    fn write_in_order(self, stream: StreamHandle) {
        if !rule_holds(Rule::OwnWorkCounts) {
            _ = api::relaxed(|| self.write_on(stream));
            return;
        }
        let fill = || {
            before_submission::before_submit(before_submission::named(stream, false));
            api::relaxed(|| self.write_on(stream))
        };
        _ = submissions::counted(false, fill);
    }
}

/// Runs work on a stream of the library, which is created at its first use, and waits for it.
#[cold]
pub(crate) fn on_own_stream(
    context: &'static Context,
    stream: &Mutex<StreamHandle>,
    work: impl FnOnce(StreamHandle) -> CuResult,
) -> CuResult {
    let mut code = Ok(());
    let submitted = submit_to_own(context, stream, |own| code = work(own));
    code.max(wait(stream, submitted))
}

/// Waits for what was submitted to this stream of the library.
fn wait(stream: &Mutex<StreamHandle>, submitted: CuResult<EventRef>) -> CuResult {
    api::relaxed(|| match submitted {
        Ok(event) => event.synchronize(),
        Err(error) => match *lock(stream) {
            0 => Err(error),
            own => api::stream_synchronize(own),
        },
    })
}

/// Submits work to this stream of the library. Returns an event recorded after it, or an error if
/// there is none.
fn submit_to_own(
    context: &'static Context,
    stream: &Mutex<StreamHandle>,
    work: impl FnOnce(StreamHandle),
) -> CuResult<EventRef> {
    before_submission::goes_to_own();
    let event = take_event(context);
    let mut stream = lock(stream);
    api::relaxed(|| {
        context.enter(|| {
            if *stream == 0 {
                *stream = api::stream_create(STREAM_NON_BLOCKING)?;
            }
            work(*stream);
            let event = event?;
            api::event_record(event.handle(), *stream).map(|()| event)
        })
    })
}

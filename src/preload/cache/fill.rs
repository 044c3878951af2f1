//! Contents of memory that the program gets (`fill`), and of the bytes past its end (`red_zone`,
//! see `red_zones.rs`). Both expose bugs that caching hides: without the library, fresh memory is
//! often zero, and an overrun does no harm.
//!
//! The library writes them on a stream that it owns, and waits for it. That stream belongs to the
//! context, so its work is ordered after the barrier of the previous free; it waits for no later
//! work of the program. Memory requested in stream order that its stream still uses is filled on
//! that stream, by a submission like the program's own.

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_options::Fill;

use crate::cache::blocks;
use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, STREAM_NON_BLOCKING, StreamHandle};
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
        let on_stream =
            |_: &StreamHandle| !rule_holds(Rule::UnusedIsFilledAtOnce) || is_in_use(address);
        let stream = stream.filter(on_stream);
        write(context, address, bytes, config::zone_bytes(), stream);
        if let Some(stream) = stream
            && rule_holds(Rule::FillIsAwaited)
        {
            note_fill(address, stream);
        }
    }
}

/// Makes later users of the block wait for the fill. Once the block is freed, others may reuse it
/// as soon as the event it was handed out with is complete, so that event must cover the fill.
#[cold]
fn note_fill(address: u64, stream: StreamHandle) {
    let Place::Block(block) = pagemap::place(address) else { return };
    let record = |event: &EventRef| api::event_record(event.handle(), stream);
    let noted = thread::with(|thread| {
        let context = block.context();
        let event = context.events.take(thread, |body| context.enter(body))?;
        api::relaxed(|| context.enter(|| record(&event)))?;
        blocks::is_now_behind(context, block.block, &event);
        Ok::<(), CuError>(())
    });
    if noted.is_err() {
        // Waiting for the stream is as safe, but may take long.
        let _ = api::relaxed(|| api::stream_synchronize(stream));
    }
}

/// Returns whether work may still use a block that the program is about to get on a stream. If none
/// does, the program may free the block at once by `cuMemFree` and get its memory again: the fill
/// must be complete by then.
#[cold]
fn is_in_use(address: u64) -> bool {
    match pagemap::place(address) {
        Place::Block(block) => lock(&block.context().allocator).is_behind(block.block),
        _ => true,
    }
}

/// Writes the contents of memory from the driver, which has no red zone.
#[inline]
pub(crate) fn prepare_driver_memory(
    context: &'static Context,
    address: u64,
    bytes: u64,
    stream: Option<StreamHandle>,
) {
    write(context, address, bytes, 0, stream);
}

#[cold]
fn write(
    context: &'static Context,
    address: u64,
    bytes: u64,
    zone_bytes: u64,
    stream: Option<StreamHandle>,
) {
    let set = |stream| {
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
    };
    match stream {
        Some(stream) if rule_holds(Rule::OwnWorkCounts) => {
            let fill = || {
                before_submission::before_submit(before_submission::named(stream, false));
                api::relaxed(|| set(stream))
            };
            _ = submissions::counted(false, fill);
        }
        Some(stream) => _ = api::relaxed(|| set(stream)),
        None => _ = on_own_stream(context, set),
    }
}

/// Runs work on the library's stream and waits for it.
pub(crate) fn on_own_stream(
    context: &'static Context,
    mut work: impl FnMut(StreamHandle) -> CuResult,
) -> CuResult {
    before_submission::goes_to_own();
    let mut stream = lock(&context.fill_stream.0);
    api::relaxed(|| {
        context.enter(|| {
            if *stream == 0 {
                *stream = api::stream_create(STREAM_NON_BLOCKING)?;
            }
            let code = work(*stream);
            code.max(api::stream_synchronize(*stream))
        })
    })
}

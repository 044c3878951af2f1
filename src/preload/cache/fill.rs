//! What memory contains when the program gets it (`fill`), and behind it (`red_zone`, see `red_zones.rs`):
//! exposes bugs that caching hides. Natively fresh memory is often zero, and an overrun does no harm.
//!
//! It is written on a stream of ours, which we wait for. That stream belongs to the context, so its work comes
//! behind the barrier of the free before; it waits for no later work of the program. Memory requested in
//! stream order that its stream still uses is filled on that stream, by a submission like the program's own.

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
/// The bytes of a red zone.
pub(crate) const ZONE: u8 = 0xa5;

/// The program is about to get these bytes. `stream`: the stream of the request, if any; otherwise they
/// are ready when this returns. Failure changes nothing: what is written helps to find bugs, and is no promise.
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

/// Once the block is freed, it may be for others what it was handed out behind: our fill, too.
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
        // As well, but that it may take long.
        let _ = api::relaxed(|| api::stream_synchronize(stream));
    }
}

/// Whether work may still use a block of ours that the program is about to get on a stream. Where none does, the
/// program may free it at once by `cuMemFree` and have its memory back: our fill must be over by then.
#[cold]
fn is_in_use(address: u64) -> bool {
    match pagemap::place(address) {
        Place::Block(block) => lock(&block.context().allocator).is_behind(block.block),
        _ => true,
    }
}

/// As `prepare`, for memory from the driver: it has no red zone.
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

/// Runs work on our stream and waits for it.
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

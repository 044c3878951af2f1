//! Checks at a free whether the program wrote past the end of the block (`red_zone`).
//!
//! If the free waits, all work with the block has completed by then. A free in stream order waits
//! for nothing, and the block may be handed out again before the stream gets there. So the zone is
//! copied to the host in the same order, and checked when the copy is complete.

use std::fmt::Write as _;

use cachealloc_history::Describe;

use crate::cache::fill;
use crate::cache::fill::ZONE;
use crate::driver::api;
use crate::driver::sys::{CuResult, STREAM_NON_BLOCKING, StreamHandle};
use crate::lock::lock;
use crate::ordering::{before_submission, submissions};
use crate::process::bounds;
use crate::snapshots;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::red_zones::{Copied, FreedZone};
use crate::state::thread::Thread;
use crate::{config, log};

const FRAMES_SHOWN: usize = 8;
/// Host memory requested from the driver at a time.
const PLACES_BYTES: usize = 64 << 10;
/// Flag that lets streams of all contexts copy to the memory.
const PORTABLE: u32 = 1;

/// Checks a block whose work has completed, or is ordered before the library's stream.
#[cold]
pub(crate) fn check(context: &'static Context, freed: FreedZone) {
    check_copies(context);
    let mut zone = vec![ZONE; config::zone_bytes() as usize];
    let copy = |stream| copy_to(zone.as_mut_ptr(), freed, stream);
    if fill::on_own_stream(context, &context.own_streams.reads, copy).is_ok() {
        report(freed, &zone);
    }
}

/// Copies the zone in stream order. Returns `None` if the zone cannot be checked.
#[cold]
pub(crate) fn copy(
    context: &'static Context,
    freed: FreedZone,
    stream: StreamHandle,
) -> Option<Copied> {
    check_copies(context);
    let place = place(context)?;
    let copy = || {
        before_submission::before_submit(before_submission::named(stream, false));
        api::relaxed(|| copy_to(place as *mut u8, freed, stream))
    };
    if submissions::counted(false, copy).is_err() {
        lock(&context.zones.places).push(place);
        return None;
    }
    Some(Copied { freed, place })
}

/// Checks the copy once this event is complete. A copy without an event keeps its place.
pub(crate) fn check_after(context: &Context, copied: Copied, event: EventRef) {
    lock(&context.zones.copies).push((copied, event));
}

/// Copies the zone after an event, on the library's own stream. Returns an event recorded after the
/// copy: the block must not be reused before that event is complete.
#[cold]
pub(crate) fn copy_behind(
    thread: &Thread,
    context: &'static Context,
    freed: FreedZone,
    event: &EventRef,
) -> Option<EventRef> {
    let behind = context.events.take(thread, |body| context.enter(body)).ok()?;
    let mut copied = None;
    let copy = || {
        let stream = own_stream(context);
        let waits = stream != 0 && api::stream_wait_event(stream, event.handle(), 0).is_ok();
        copied = if waits { copy(context, freed, stream) } else { None };
        match copied {
            Some(_) => api::event_record(behind.handle(), stream),
            None => Ok(()),
        }
    };
    let code = api::relaxed(|| context.enter(copy));
    let copied = copied.filter(|_| code.is_ok())?;
    check_after(context, copied, behind.clone());
    Some(behind)
}

/// Checks the copies that are complete. Never waits.
pub(crate) fn check_copies(context: &Context) {
    if context.is_dead() {
        return;
    }
    let copies = core::mem::take(&mut *lock(&context.zones.copies));
    for (copied, event) in copies {
        if api::relaxed(|| event.query()).is_err() {
            check_after(context, copied, event);
            continue;
        }
        let bytes = config::zone_bytes() as usize;
        // SAFETY: a place of this size that nothing else uses; the copy into it has completed.
        let zone = unsafe { core::slice::from_raw_parts(copied.place as *const u8, bytes) };
        report(copied.freed, zone);
        lock(&context.zones.places).push(copied.place);
    }
}

/// Waits briefly for the remaining copies at the end of the process, and checks them.
pub(crate) fn check_at_end() {
    if config::zone_bytes() == 0 {
        return;
    }
    let mut until = bounds::ZONES_AT_EXIT.begin();
    for context in contexts::all() {
        let Some(_open) = context.open_while(|| !until.is_spent()) else { continue };
        until.until(|| {
            check_copies(context);
            lock(&context.zones.copies).is_empty()
        });
    }
}

/// Copies the zone. The caller must leave `place` unused until the copy has completed.
fn copy_to(place: *mut u8, freed: FreedZone, stream: StreamHandle) -> CuResult {
    let bytes = config::zone_bytes() as usize;
    // SAFETY: the place has this many bytes, and nothing else uses it before the copy has
    // completed.
    unsafe { api::memcpy_dtoh_async(place, freed.address + freed.bytes, bytes, stream) }
}

/// Returns the stream for copies that belong to no stream of the program, or 0 if there is none.
fn own_stream(context: &Context) -> StreamHandle {
    let mut stream = lock(&context.zones.stream);
    if *stream == 0 {
        *stream = api::stream_create(STREAM_NON_BLOCKING).unwrap_or(0);
    }
    *stream
}

/// Returns host memory for one zone.
fn place(context: &Context) -> Option<usize> {
    if let Some(place) = lock(&context.zones.places).pop() {
        return Some(place);
    }
    let bytes = config::zone_bytes() as usize;
    let count = (PLACES_BYTES / bytes).max(1);
    let take = || api::mem_host_alloc(count * bytes, PORTABLE);
    let first = api::relaxed(|| context.enter(take)).ok()?;
    lock(&context.zones.places).extend((1..count).map(|number| first + number * bytes));
    Some(first)
}

fn report(freed: FreedZone, zone: &[u8]) {
    let Some(first) = zone.iter().position(|byte| *byte != ZONE) else { return };
    let count = zone.iter().filter(|byte| **byte != ZONE).count();
    let FreedZone { address, bytes, stack } = freed;
    let mut text = format!(
        "cachealloc: red zone: the program wrote {count} bytes past the end of a block of {bytes} \
         bytes at {address:#x}, the first one {first} bytes past the end\n"
    );
    if stack.is_none() {
        text += "  allocation site unknown: add record:state\n";
    }
    snapshots::contents::with_names([stack], |names| {
        for frame in names.frames(stack).iter().take(FRAMES_SHOWN) {
            let _ = writeln!(text, "  {}  {}", frame.name, frame.place());
        }
    });
    log::raw(text.as_bytes());
}

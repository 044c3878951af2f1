//! A miss: the cache has no block, so the library asks the driver, by the core's steps.

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Request, Requester, Step};

use crate::cache::arenas::Frees;
use crate::cache::blocks::{Call, empty_lists_for_miss, hand_out, hand_out_recorded};
use crate::cache::release::PendingRelease;
use crate::cache::retry;
use crate::cache::retry::Retry;
use crate::cache::{arenas, stream_frees};
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, StreamHandle};
use crate::driver_memory::{forecast, limits};
use crate::graphs::pool_life;
use crate::lock::lock;
use crate::ordering::pending;
use crate::peer_reclaim::{Needed, ReclaimRequest};
use crate::process::bounds;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::events::EventRef;
use crate::state::inflight_releases::InFlightRelease;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::trim::scavenger;

pub(crate) mod chunks;
mod driver;
mod growth;

use driver::{ask_driver, final_attempt};
use growth::{Growth, grow, map, recorded_at_arrival};

/// Serves a miss. `rest` is the last attempt before the library asks peer processes.
#[cold]
pub(crate) fn miss_or_else(
    context: &'static Context,
    request: Request,
    call: Call,
    rest: impl FnOnce() -> Option<u64>,
) -> CuResult<u64> {
    let (bytes, again) = (request.bytes(), request.again());
    let mut result = thread::with(|thread| miss(thread, context, request, call));
    scavenger::cache_grew();
    if result == Err(CuError::OUT_OF_MEMORY) {
        result = rest().ok_or(CuError::OUT_OF_MEMORY);
    }
    let mut reclaim = ReclaimRequest::default();
    let may_ask = call.requester == Requester::Context && bytes <= limits::most(context);
    let needed = Needed { device: context.device, bytes: Some(bytes), context: Some(context) };
    while result == Err(CuError::OUT_OF_MEMORY) && may_ask && reclaim.try_reclaim(needed) {
        result = match context.is_dead() {
            true => Err(CuError::CONTEXT_IS_DESTROYED),
            false => thread::with(|thread| miss(thread, context, again.again(), call)),
        };
    }
    result
}

/// Serves a request for which the cache has no block. One thread at a time asks the driver; hits
/// continue meanwhile.
fn miss(
    thread: &Thread,
    context: &'static Context,
    mut request: Request,
    call: Call,
) -> CuResult<u64> {
    pool_life::reap();
    let mut growth = Growth::new(thread, context);
    // No device can satisfy this, so the cache is not emptied for it.
    if request.bytes() > limits::most(context) {
        return ask_driver(&mut growth, &request, call);
    }
    let mut retry = Retry::now();
    let mut served = attempt(&mut growth, &mut request, call);
    for _ in bounds::ROOM.tries() {
        if served != Err(CuError::OUT_OF_MEMORY)
            || !growth.let_go(|| retry.memory_arrived(context, &request))??
        {
            break;
        }
        request = request.again();
        served = attempt(&mut growth, &mut request, call);
    }
    served
}

fn attempt(growth: &mut Growth, request: &mut Request, call: Call) -> CuResult<u64> {
    let context = growth.context;
    if request.private().is_none() && chunks::prepare(context, request) {
        if !forecast::may_serve(context, request.bytes()) {
            return final_attempt(growth, request, call);
        }
        return match ask_driver(growth, request, call) {
            Err(CuError::OUT_OF_MEMORY) => final_attempt(growth, request, call),
            answer => answer,
        };
    }
    empty_lists_for_miss(growth.thread, context, request.bytes());
    arenas::prepare(context);
    let served = serve(growth, request, call);
    arenas::drop_spare(context);
    served
}

/// Follows the core's steps until there is a block, or nothing is left to try.
fn serve(growth: &mut Growth, request: &mut Request, call: Call) -> CuResult<u64> {
    let context = growth.context;
    loop {
        // On the plain driver, a stream-ordered request goes on beside a free that waits. If it is
        // refused, `retry` waits for the free as long as it may.
        let goes_on = pending::waits_for_a_while(retry::waiter(request));
        let frees = goes_on.then(|| Frees::so_far(context));
        request.keep_mapped(frees.as_ref().is_some_and(|frees| !frees.are_over()));
        let mut allocator = lock(&context.allocator);
        // The memory of a later free may be in use for longer than this request may wait.
        let others_came = frees.as_ref().is_some_and(|frees| !frees.are_all(context));
        if others_came && rule_holds(Rule::MovesOnlyMemoryOfOverFrees) {
            continue;
        }
        let recorded = recorded_at_arrival(request).is_some();
        match allocator.poll(request) {
            Step::Done(block) if recorded => {
                return Ok(hand_out_recorded(context, &mut allocator, block, call));
            }
            Step::Done(block) => return Ok(hand_out(context, &mut allocator, block, call)),
            Step::Release(segments) => {
                let releasing = PendingRelease::new(context, &mut allocator, segments, call.stack);
                drop(allocator);
                let waiter = retry::waiter(request);
                growth.let_go(|| releasing.release(context, waiter))??;
            }
            Step::Map(mappings) => {
                drop(allocator);
                map(growth, request, &mappings, call)?;
            }
            Step::Unmap(mappings) => {
                context.recorder.unmapped(&mut allocator, &mappings, call.stack);
                let in_flight = InFlightRelease::to(context.device, arenas::bytes_of(&mappings));
                drop(allocator);
                // Other requests wait for all frees of the memory, whichever came last.
                let frees = || frees.unwrap_or_else(|| Frees::so_far(context));
                growth.let_go(|| frees().wait())??;
                arenas::unmap(context, &mappings, in_flight);
            }
            Step::QueryEvents => {
                drop(allocator);
                stream_frees::query(context);
            }
            Step::Order(events) => {
                context.recorder.completed(&mut allocator);
                let events = (stream_frees::events(&events), events.len());
                drop(allocator);
                let _in_order = stream_frees::in_order(context);
                match behind(growth.thread, context, call.stream, events) {
                    Some(event) => {
                        let mut allocator = lock(&context.allocator);
                        let block = allocator.ordered(request, event.id());
                        return Ok(hand_out(context, &mut allocator, block, call));
                    }
                    None => stream_frees::order_failed(context, request),
                }
            }
            Step::Reserve { bytes } => {
                drop(allocator);
                // A segment cannot use the spare memory, which occupies the device.
                arenas::drop_spare(context);
                grow(growth, request, bytes, call)?;
            }
            Step::OutOfMemory => {
                drop(allocator);
                return final_attempt(growth, request, call);
            }
        }
    }
}

/// Makes a stream wait for these events, as the driver itself does, and returns an event recorded
/// after them. `known` are those of the events that still exist.
fn behind(
    thread: &Thread,
    context: &'static Context,
    stream: StreamHandle,
    (known, count): (Vec<EventRef>, usize),
) -> Option<EventRef> {
    if known.len() != count {
        return None;
    }
    let own = context.events.take(thread, |body| context.enter(body)).ok()?;
    let waits = |event: &EventRef| api::stream_wait_event(stream, event.handle(), 0).is_ok();
    let lane = thread.lane();
    LEDGER.begin(false, lane);
    let ordered = api::relaxed(|| {
        context.enter(|| {
            let waits = !rule_holds(Rule::MemoryOfOthersIsAwaited) || known.iter().all(waits);
            let recorded = waits && api::event_record(own.handle(), stream).is_ok();
            if recorded { Ok(()) } else { Err(CuError::INVALID_VALUE) }
        })
    });
    LEDGER.end(false, lane);
    (ordered.is_ok()).then_some(own)
}

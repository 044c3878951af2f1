//! A miss: the cache has no block, and the driver is asked, by the core's steps.

use std::sync::MutexGuard;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Address, Allocator, Mapping, Request, Requester, Step};

use crate::cache::blocks::{Call, empty_lists, hand_out, hand_out_told, tell};
use crate::cache::departures::{self, Departure};
use crate::cache::room::{self, Room, wait_for_frees};
use crate::cache::{arenas, chunks, shortage, stream_frees};
use crate::contexts::Context;
use crate::contexts::events::EventRef;
use crate::driver::api;
use crate::driver::sys::{
    self, CONTEXT_IS_DESTROYED, CuResult, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, StreamHandle,
};
use crate::driver_memory::held_bytes::{self, Key};
use crate::driver_memory::limits;
use crate::graphs::pool_life;
use crate::lock::lock;
use crate::ordering::{LEDGER, observers, widen};
use crate::process::bypass;
use crate::process::thread::{self, Thread};
use crate::record::{self, driver_memory};
use crate::statistics::counters::{self, Count};
use crate::trim::release::{self, Leaving};
use crate::trim::scavenger;
use crate::{config, memory_hooks, pagemap};

/// No locks of ours are held around the report.
#[cold]
pub fn miss_or_report(
    context: &'static Context,
    request: Request,
    call: Call,
) -> Result<u64, CuResult> {
    miss_or_else(context, request, call, || None)
}

/// As `miss_or_report`; `rest`: what is left to try before the report.
#[cold]
pub fn miss_or_else(
    context: &'static Context,
    request: Request,
    call: Call,
    rest: impl FnOnce() -> Option<u64>,
) -> Result<u64, CuResult> {
    let bytes = request.bytes();
    let mut result = thread::with(|thread| miss(thread, context, request, call));
    scavenger::cache_grew();
    if result == Err(OUT_OF_MEMORY) {
        result = rest().ok_or(OUT_OF_MEMORY);
    }
    // A stream-ordered request that fails here goes to the driver, which may have memory for it.
    if result == Err(OUT_OF_MEMORY) && call.requester == Requester::Context {
        shortage::happened(context, bytes, call.stack);
    }
    result
}

/// The cache has no block. One thread at a time asks the driver; hits go on meanwhile.
fn miss(
    thread: &Thread,
    context: &'static Context,
    mut request: Request,
    call: Call,
) -> Result<u64, CuResult> {
    pool_life::reap();
    let mut growth = Growth::new(thread, context, &request);
    // No device gives this: the cache is not emptied for it.
    if request.bytes() > limits::most(context) {
        return ask_driver(&mut growth, &request, call);
    }
    let mut room = Room::now();
    let mut served = attempt(&mut growth, &mut request, call);
    for _ in 0..room::TRIES_MAX {
        if served != Err(OUT_OF_MEMORY) || !room.has_come(context, &request)? {
            break;
        }
        request = request.again();
        served = attempt(&mut growth, &mut request, call);
    }
    served
}

fn attempt(growth: &mut Growth, request: &mut Request, call: Call) -> Result<u64, CuResult> {
    let context = growth.context;
    if request.private().is_none() && chunks::prepare(context, request) {
        return match ask_driver(growth, request, call) {
            Err(OUT_OF_MEMORY) => last_resort(growth, request, call),
            answer => answer,
        };
    }
    empty_lists(context);
    arenas::prepare(context);
    let served = serve(growth, request, call);
    arenas::drop_spare(context);
    served
}

/// The lock of a miss, let go while memory hooks hear that the driver is asked: they may allocate, or
/// wait for a thread that does. A request stands that anything happens between two of its steps.
struct Growth<'a> {
    thread: &'a Thread,
    context: &'static Context,
    heard: Option<&'a memory_hooks::Call<'a>>,
    guard: Option<MutexGuard<'static, ()>>,
}

impl<'a> Growth<'a> {
    fn new(thread: &'a Thread, context: &'static Context, request: &Request) -> Growth<'a> {
        // In a capture they hear of what the program asks, not of what the driver is asked: the
        // capture's lock is held.
        let heard = memory_hooks::heard(thread).filter(|_| request.private().is_none());
        Growth { thread, context, heard, guard: Some(lock(&context.growth)) }
    }

    /// Err: the context has ended meanwhile, and all that belonged to it.
    fn tell(&mut self, tell: impl FnOnce(&memory_hooks::Call)) -> Result<(), CuResult> {
        let Some(call) = self.heard else { return Ok(()) };
        // What was unmapped for this request would be on its way as long as they take.
        arenas::drop_spare(self.context);
        self.guard = None;
        tell(call);
        self.guard = Some(lock(&self.context.growth));
        if self.context.is_dead() { Err(CONTEXT_IS_DESTROYED) } else { Ok(()) }
    }

    /// So many bytes will be asked for.
    fn before(&mut self, bytes: u64) -> Result<(), CuResult> {
        self.tell(|hooks| hooks.before_driver(bytes))
    }

    /// They came to this address; 0: they did not.
    fn after(&mut self, bytes: u64, address: u64) -> Result<(), CuResult> {
        self.tell(|hooks| hooks.after_driver(bytes, address))
    }
}

/// Follows the core's steps until there is a block, or nothing is left to try.
fn serve(growth: &mut Growth, request: &mut Request, call: Call) -> Result<u64, CuResult> {
    let context = growth.context;
    loop {
        let mut allocator = lock(&context.allocator);
        let told = request.arrived().is_some() && rule_holds(Rule::ArrivedIsTold);
        match allocator.poll(request) {
            Step::Done(block) if told => {
                return Ok(hand_out_told(context, &mut allocator, block, call));
            }
            Step::Done(block) => return Ok(hand_out(context, &mut allocator, block, call)),
            Step::Release(segments) => {
                let leaving = Leaving::new(context, &mut allocator, segments);
                drop(allocator);
                succeed(leaving.release(context))?;
            }
            Step::Map(mappings) => {
                drop(allocator);
                map(growth, request, &mappings, call)?;
            }
            Step::Unmap(mappings) => {
                context.recorder.unmapped(&mut allocator, &mappings);
                let departure = Departure::to(context.device);
                drop(allocator);
                succeed(arenas::unmap(context, &mappings, departure, true))?;
            }
            Step::QueryEvents => {
                drop(allocator);
                stream_frees::query(context);
            }
            Step::Order(events) => {
                context.recorder.completed(&mut allocator);
                let events = (stream_frees::events(context, &events), events.len());
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
                // Of no use for a segment, and in its way.
                arenas::drop_spare(context);
                grow(growth, request, bytes, call)?;
            }
            Step::OutOfMemory => {
                drop(allocator);
                return last_resort(growth, request, call);
            }
        }
    }
}

/// Makes a stream wait for these events, as the driver does natively, and answers one recorded behind
/// that. `known`: of so many, those that there still are.
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
    let waits = |event: &EventRef| api::stream_wait_event(stream, event.handle(), 0) == SUCCESS;
    let lane = thread.lane();
    LEDGER.begin(false, lane);
    let ordered = api::relaxed(|| {
        context.enter(&mut || {
            let waits = !rule_holds(Rule::BehindOthersWaits) || known.iter().all(waits);
            let recorded = waits && api::event_record(own.handle(), stream) == SUCCESS;
            if recorded { SUCCESS } else { INVALID_VALUE }
        })
    });
    LEDGER.end(false, lane);
    (ordered == SUCCESS).then_some(own)
}

/// Asks the driver for memory in an arena and tells the request how it went.
fn map(
    growth: &mut Growth,
    request: &mut Request,
    mappings: &[Mapping],
    call: Call,
) -> Result<(), CuResult> {
    let context = growth.context;
    let bytes = mappings.iter().map(|mapping| mapping.bytes).sum();
    growth.before(bytes)?;
    observers::look_at_libraries();
    match counters::timed_reserve(|| arenas::map(context, mappings)) {
        SUCCESS => {
            let mut allocator = lock(&context.allocator);
            allocator.mapped(request);
            context.recorder.mapped(&allocator, mappings, call.stack);
            tell_arrived(context, &mut allocator, request, call);
            drop(allocator);
            growth.after(bytes, mappings[0].base.0)?;
        }
        code if sys::shows_in_free(code) => {
            lock(&context.allocator).reserve_failed(request);
            growth.after(bytes, 0)?;
            return Err(code);
        }
        // Whatever the driver has against it: natively no such call is made, and there is more to try.
        _ => {
            no_memory(context, request);
            growth.after(bytes, 0)?;
        }
    }
    Ok(())
}

/// The driver has none: what other threads are about to give back may do.
fn no_memory(context: &'static Context, request: &mut Request) {
    wait_for_frees(context);
    arenas::drop_spare(context);
    departures::awaited(context.device);
    pool_life::reap_late();
    stream_frees::wait_for_plain_frees(context);
    stream_frees::assume_over(context);
    empty_lists(context);
    lock(&context.allocator).reserve_failed(request);
}

/// Asks the driver for a segment and tells the request how it went.
fn grow(
    growth: &mut Growth,
    request: &mut Request,
    mut bytes: u64,
    call: Call,
) -> Result<(), CuResult> {
    let mut reserved = reserve(growth, request, bytes, call)?;
    while !reserved
        && let Some(smaller) = config::get().policy.smaller_chunk(bytes, request.bytes())
    {
        bytes = smaller;
        reserved = reserve(growth, request, bytes, call)?;
    }
    if !reserved {
        no_memory(growth.context, request);
    }
    Ok(())
}

/// A segment of this size for the request. False: there is no memory for it.
fn reserve(
    growth: &mut Growth,
    request: &mut Request,
    bytes: u64,
    call: Call,
) -> Result<bool, CuResult> {
    let context = growth.context;
    let Some(claim) = limits::claim(context.device, bytes) else { return Ok(false) };
    growth.before(bytes)?;
    match segment(context, bytes) {
        Ok(base) => {
            claim.keep();
            if record::is_on() {
                // Of a context that has ended, and whose end is not told yet.
                drop(driver_memory::freed_within(base, bytes));
            }
            let mut allocator = lock(&context.allocator);
            allocator.reserved(request, Address(base), bytes);
            context.recorder.segment_reserved(&allocator, Address(base), call.stack);
            tell_arrived(context, &mut allocator, request, call);
            drop(allocator);
            widen(Rule::ArrivedIsTold);
            growth.after(bytes, base)?;
            Ok(true)
        }
        Err(code) => {
            growth.after(bytes, 0)?;
            if code == OUT_OF_MEMORY { Ok(false) } else { Err(code) }
        }
    }
}

/// The request has its block with the memory that came.
fn tell_arrived(context: &Context, allocator: &mut Allocator, request: &Request, call: Call) {
    if let Some(block) = request.arrived().filter(|_| rule_holds(Rule::ArrivedIsTold)) {
        tell(context, allocator, &block, call);
    }
}

fn segment(context: &'static Context, bytes: u64) -> Result<u64, CuResult> {
    observers::look_at_libraries();
    let mut base = 0;
    let code = api::relaxed(|| {
        context.enter(&mut || counters::timed_reserve(|| api::mem_alloc(&mut base, bytes as usize)))
    });
    if code != SUCCESS {
        return Err(code);
    }
    let refused = if pagemap::forget_lost(context, base, bytes) {
        bypass::begin(format_args!("a segment at {base:#x} was freed past the library"));
        INVALID_VALUE // ends this miss: from now on the hook asks the driver itself
    } else if !pagemap::fits(base, bytes) || !pagemap::insert(context, base, bytes) {
        OUT_OF_MEMORY
    } else {
        SUCCESS
    };
    if refused != SUCCESS {
        api::relaxed(|| context.enter(&mut || api::mem_free(base)));
        return Err(refused);
    }
    counters::count(Count::SegmentsReserved);
    Ok(base)
}

/// Everything of this context has gone back. The other contexts of the device may hold more; after
/// that the driver itself is asked for exactly what the program asked for, and its answer counts.
fn last_resort(growth: &mut Growth, request: &Request, call: Call) -> Result<u64, CuResult> {
    let context = growth.context;
    if !may_be_the_driver_s(request) {
        return Err(OUT_OF_MEMORY);
    }
    wait_for_frees(context);
    succeed(release::everything_free(Some(context.device)))?;
    ask_driver(growth, request, call)
}

/// The driver's own allocation and its own answer; not ours to free.
fn ask_driver(growth: &mut Growth, request: &Request, call: Call) -> Result<u64, CuResult> {
    let context = growth.context;
    if !may_be_the_driver_s(request) {
        return Err(OUT_OF_MEMORY);
    }
    let Some(claim) = limits::claim(context.device, request.bytes()) else {
        counters::count(Count::RefusedByLimit);
        return Err(OUT_OF_MEMORY);
    };
    counters::count(Count::PassedToDriver);
    let mut pointer = 0;
    let bytes = request.bytes() as usize;
    growth.before(request.bytes())?;
    let code = api::relaxed(|| context.enter(&mut || api::mem_alloc(&mut pointer, bytes)));
    growth.after(request.bytes(), if code == SUCCESS { pointer } else { 0 })?;
    match code {
        SUCCESS => {
            held_bytes::hold(Key::Memory(pointer), claim, context.id);
            if record::is_on() {
                driver_memory::allocated(driver_memory::Allocation {
                    address: pointer,
                    bytes: request.bytes(),
                    device: context.device,
                    context_id: context.id,
                    stream: 0,
                    stack: call.stack,
                });
            }
            Ok(pointer)
        }
        code => Err(code),
    }
}

/// Not what is freed on a stream, nor what a capture may free.
fn may_be_the_driver_s(request: &Request) -> bool {
    request.requester() == Requester::Context && request.private().is_none()
}

fn succeed(code: CuResult) -> Result<(), CuResult> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

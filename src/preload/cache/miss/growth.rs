//! Growth of the cache: memory from the driver for a segment or an arena, for one request.

use std::sync::MutexGuard;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Address, Allocation, Allocator, Mapping, Request};

use crate::cache::blocks::{Call, empty_lists, record_taken};
use crate::cache::{arenas, release, retry, stream_frees};
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult};
use crate::driver_memory::{forecast, limits, table};
use crate::graphs::pool_life;
use crate::lock::lock;
use crate::ordering::{observers, real_frees};
use crate::process::bypass;
use crate::state::contexts::Context;
use crate::state::thread::Thread;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::steady;
use crate::test_delay::test_delay;
use crate::{config, memory_hooks, pagemap};

/// The growth lock of a miss. It is released in two cases:
///
/// - while memory hooks are notified of the driver call: they may allocate, or wait for a thread
///   that does;
/// - while the request waits for work: without the library, requests of other threads might be
///   served meanwhile, and their work may be what this one waits for.
///
/// A request tolerates any event between two of its steps.
pub(super) struct Growth<'a> {
    pub(super) thread: &'a Thread,
    pub(super) context: &'static Context,
    observed: Option<&'a memory_hooks::Call<'a>>,
    pub(super) guard: Option<MutexGuard<'static, ()>>,
}

impl<'a> Growth<'a> {
    pub(super) fn new(thread: &'a Thread, context: &'static Context) -> Growth<'a> {
        let observed = memory_hooks::observed_call(thread);
        Growth { thread, context, observed, guard: Some(lock(&context.growth_lock)) }
    }

    /// Notifies the memory hooks. Returns an error if the context has ended meanwhile with
    /// everything that belonged to it.
    fn notify(&mut self, send: impl FnOnce(&memory_hooks::Call)) -> CuResult {
        let Some(call) = self.observed else { return Ok(()) };
        // Memory unmapped for this request would otherwise stay in flight as long as the callbacks
        // take.
        arenas::drop_spare(self.context);
        self.let_go(|| send(call))
    }

    /// Runs a possibly long operation without the lock. Returns an error if the context has ended
    /// meanwhile.
    pub(super) fn let_go<T>(&mut self, body: impl FnOnce() -> T) -> CuResult<T> {
        if rule_holds(Rule::WaitingMissBlocksNobody) {
            self.guard = None;
        }
        let answer = body();
        self.guard.get_or_insert_with(|| lock(&self.context.growth_lock));
        if self.context.is_dead() { Err(CuError::CONTEXT_IS_DESTROYED) } else { Ok(answer) }
    }

    /// Notifies the hooks that the library is about to request this many bytes from the driver.
    pub(super) fn before(&mut self, bytes: u64, call: Call) -> CuResult {
        steady::ends(call.stack);
        self.notify(|hooks| hooks.before_driver(bytes))
    }

    /// Notifies the hooks of the resulting address, or of 0 if the driver refused.
    pub(super) fn after(&mut self, bytes: u64, address: u64) -> CuResult {
        self.notify(|hooks| hooks.after_driver(bytes, address))
    }
}

/// Asks the driver for memory in an arena and gives the request the result.
pub(super) fn map(
    growth: &mut Growth,
    request: &mut Request,
    mappings: &[Mapping],
    call: Call,
) -> CuResult {
    let context = growth.context;
    let bytes = mappings.iter().map(|mapping| mapping.bytes).sum();
    if !forecast::may_serve(context, arenas::missing_bytes(context, bytes)) {
        return no_memory(growth, request);
    }
    growth.before(bytes, call)?;
    observers::inspect_libraries();
    match counters::timed_reserve(|| arenas::map(context, mappings)) {
        Ok(()) => {
            let mut allocator = lock(&context.allocator);
            allocator.mapped(request);
            context.recorder.mapped(&allocator, mappings, call.stack);
            record_arrived(context, &mut allocator, request, call);
            drop(allocator);
            growth.after(bytes, mappings[0].base.0)?;
        }
        Err(error) if error.is_returned_by_free() => {
            lock(&context.allocator).reserve_failed(request);
            growth.after(bytes, 0)?;
            return Err(error);
        }
        // Whatever the driver's reason: without the library no such call is made, and there is more
        // to try.
        _ => {
            no_memory(growth, request)?;
            growth.after(bytes, 0)?;
        }
    }
    Ok(())
}

/// Handles a refusal of the driver: memory that other threads are about to release may suffice.
fn no_memory(growth: &mut Growth, request: &mut Request) -> CuResult {
    let context = growth.context;
    arenas::drop_spare(context);
    growth.let_go(|| {
        retry::wait_for_frees(context, retry::waiter(request));
        retry::awaited_for(context, request);
        stream_frees::wait_for_plain_frees(context, retry::waiter(request));
        pool_life::reap_late(context, retry::waiter(request));
    })?;
    stream_frees::assume_over(context);
    empty_lists(context);
    lock(&context.allocator).reserve_failed(request);
    Ok(())
}

/// Asks the driver for a segment and gives the request the result.
pub(super) fn grow(
    growth: &mut Growth,
    request: &mut Request,
    mut bytes: u64,
    call: Call,
) -> CuResult {
    let mut reserved = reserve(growth, request, bytes, call)?;
    while !reserved
        && let Some(smaller) = config::get().policy.smaller_chunk(bytes, request.bytes())
    {
        bytes = smaller;
        reserved = reserve(growth, request, bytes, call)?;
    }
    if !reserved {
        no_memory(growth, request)?;
    }
    Ok(())
}

/// Reserves a segment of this size for the request. Returns `false` if there is no memory for it.
fn reserve(growth: &mut Growth, request: &mut Request, bytes: u64, call: Call) -> CuResult<bool> {
    let context = growth.context;
    let Some(claim) = limits::claim(context.device, bytes) else { return Ok(false) };
    // A capture has no attempt after this one.
    let is_final = request.private().is_some() && request.asks_last_for(bytes);
    let may_serve = forecast::may_serve(context, bytes)
        || (is_final && forecast::pools_may_serve(context, bytes));
    if !may_serve {
        return Ok(false);
    }
    growth.before(bytes, call)?;
    match segment(growth, bytes, retry::waiter(request)) {
        Ok(base) => {
            claim.keep();
            table::taken_by_cache(base, bytes);
            let mut allocator = lock(&context.allocator);
            allocator.reserved(request, Address(base), bytes);
            context.recorder.segment_reserved(&allocator, Address(base), call.stack);
            record_arrived(context, &mut allocator, request, call);
            drop(allocator);
            test_delay(Rule::ArrivedIsRecorded);
            growth.after(bytes, base)?;
            Ok(true)
        }
        Err(error) => {
            growth.after(bytes, 0)?;
            if error == CuError::OUT_OF_MEMORY { Ok(false) } else { Err(error) }
        }
    }
}

/// Records the block that the request has in the new memory.
fn record_arrived(context: &Context, allocator: &mut Allocator, request: &Request, call: Call) {
    if let Some(block) = recorded_at_arrival(request) {
        record_taken(context, allocator, &block, call);
    }
}

/// Returns the block that the request has in new memory, which was recorded with that memory.
pub(super) fn recorded_at_arrival(request: &Request) -> Option<Allocation> {
    request.arrived().filter(|_| rule_holds(Rule::ArrivedIsRecorded))
}

/// Allocates memory of the driver. While another thread's real free holds the context, the driver
/// makes this wait for that free. So no real free begins meanwhile. If one is running, a
/// stream-ordered request gets an error, and any other request waits for it without the growth
/// lock.
pub(super) fn driver_alloc(growth: &mut Growth, bytes: u64, waiter: Waiter) -> CuResult<u64> {
    let context = growth.context;
    let alloc = || api::relaxed(|| context.enter(|| api::mem_alloc(bytes as usize)));
    if !rule_holds(Rule::GrowthAvoidsRealFree) {
        return alloc();
    }
    let barriers = lock(&context.barrier_lock);
    if !real_frees::any(context) {
        return alloc();
    }
    drop(barriers);
    match waiter {
        Waiter::GoesOn => Err(CuError::NOT_READY),
        Waiter::StandsStill => growth.let_go(alloc)?,
    }
}

fn segment(growth: &mut Growth, bytes: u64, waiter: Waiter) -> CuResult<u64> {
    let context = growth.context;
    observers::inspect_libraries();
    let base = counters::timed_reserve(|| driver_alloc(growth, bytes, waiter))?;
    let refused = if pagemap::forget_lost(context, base, bytes) {
        bypass::begin(format_args!("a segment at {base:#x} was freed without passing the library"));
        Err(CuError::INVALID_VALUE) // ends this miss: from now on the hook calls the driver directly
    } else if !pagemap::fits(base, bytes) || !pagemap::insert(context, base, bytes) {
        Err(CuError::OUT_OF_MEMORY)
    } else {
        Ok(())
    };
    if let Err(refused) = refused {
        let _ = api::relaxed(|| context.enter(|| release::untouched(base, bytes)));
        return Err(refused);
    }
    counters::count(Count::SegmentsReserved);
    Ok(base)
}

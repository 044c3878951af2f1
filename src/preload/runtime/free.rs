//! A free: claim the block, find out what the contract asks for, do that, publish.
//!
//! The order is the contract (DESIGN 3.1): a block is published only after the barrier's wait is
//! in. Another thread may take it the moment it is published.

use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_core::order::{
    Facts, Route, Situation, StreamRoute, free_async_block_plainly, free_context_block,
    free_on_stream,
};
use cachealloc_core::{Ready, StreamId};

use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuResult, INVALID_VALUE, NOT_PERMITTED, SUCCESS, StreamHandle};
use crate::runtime::barrier::{self, Refused};
use crate::runtime::contexts::Context;
use crate::runtime::extents::{self, Kind, LiveBlock, Place};
use crate::runtime::lookaside::Held;
use crate::runtime::settle::settle;
use crate::runtime::stats::{self, Count, Wait};
use crate::runtime::{LEDGER, alloc, captures, debts, lock, tags};

/// `cuMemFree` of an address. `None`: not ours, the driver knows.
#[inline]
pub fn plainly(address: u64) -> Option<CuResult> {
    match extents::place(address) {
        Place::Foreign => None,
        Place::Inside(_) => Some(INVALID_VALUE),
        Place::Block(block) => Some(claimed(block, |block| match block.kind {
            Kind::Context => free_context_block_of(block),
            Kind::Stream => free_stream_block_of(block),
        })),
    }
}

/// `cuMemFreeAsync` of an address on a stream that does not capture. `None` as in `plainly`.
pub fn on_stream(address: u64, stream: StreamHandle) -> Option<CuResult> {
    match extents::place(address) {
        Place::Foreign => None,
        Place::Inside(_) => Some(INVALID_VALUE),
        Place::Block(block) => Some(claimed(block, |block| free_on_stream_of(block, stream))),
    }
}

/// `cuMemFreeAsync` in a capture that the driver would have accepted: nobody gets the block before
/// a barrier behind the capture's end.
pub fn parked(address: u64) -> CuResult {
    match extents::place(address) {
        Place::Block(block) => claimed(block, |block| park_for_barrier(block, block.context())),
        _ => INVALID_VALUE,
    }
}

/// Bypass: the block is taken from the program and never used again. The wait stays: the program
/// may lean on it.
pub fn without_reuse(address: u64) -> Option<CuResult> {
    match extents::place(address) {
        Place::Foreign => None,
        Place::Inside(_) => Some(INVALID_VALUE),
        Place::Block(block) if block.claim() => Some(settle(block.context(), Wait::Bypass)),
        Place::Block(_) => Some(INVALID_VALUE),
    }
}

/// Counts a free in progress for as long as it lives.
struct InProgress<'a>(&'a AtomicU32);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[inline]
fn claimed(block: LiveBlock, free: impl FnOnce(&LiveBlock) -> CuResult) -> CuResult {
    if !block.claim() {
        return INVALID_VALUE;
    }
    free(&block)
}

fn in_progress(context: &Context) -> InProgress<'_> {
    context.frees_in_progress.fetch_add(1, Ordering::Acquire);
    InProgress(&context.frees_in_progress)
}

#[inline]
fn free_context_block_of(block: &LiveBlock) -> CuResult {
    let context = block.context();
    let facts = facts(context);
    let route = free_context_block(&facts);
    if route == Route::Publish {
        debts::lean(context);
        publish(context, block);
        return SUCCESS;
    }
    let _in_progress = in_progress(context);
    let reason = match facts {
        _ if facts.capturing => Wait::Capture,
        _ if facts.mode == cachealloc_core::order::Mode::Strict => Wait::Strict,
        _ if !facts.plain => Wait::NotPlain,
        _ => Wait::Look,
    };
    follow(block, context, route, reason)
}

fn free_stream_block_of(block: &LiveBlock) -> CuResult {
    let context = block.context();
    let facts = facts(context);
    let route = free_async_block_plainly(&facts);
    follow(block, context, route, Wait::Strict)
}

fn follow(block: &LiveBlock, context: &'static Context, route: Route, reason: Wait) -> CuResult {
    let code = match route {
        Route::Publish => SUCCESS,
        Route::Barrier | Route::BarrierThenWait => {
            match behind_barrier(context, route == Route::BarrierThenWait, reason) {
                Ok(()) => SUCCESS,
                Err(Refused::Capturing) => settle(context, Wait::Capture),
                Err(Refused::Failed(code)) if reports(code) => code,
                Err(Refused::Failed(_)) => settle(context, Wait::BarrierFailed),
            }
        }
        Route::Settle => settle(context, reason),
        Route::ParkOnEvent => return park(block, context),
        Route::ParkForBarrier => return park_for_barrier(block, context),
    };
    conclude(block, context, code)
}

/// The barrier is in (or waited for): the block is anybody's.
fn behind_barrier(context: &'static Context, wait: bool, reason: Wait) -> Result<(), Refused> {
    let passed = barrier::put(context)?;
    if !wait && !passed.wait_first {
        debts::owe(context, passed.seen.number(), passed.event);
        return Ok(());
    }
    let reason = if wait { reason } else { Wait::NotPlain };
    match barrier::wait(context, &passed, reason) {
        SUCCESS => Ok(()),
        code => Err(Refused::Failed(code)),
    }
}

fn conclude(block: &LiveBlock, context: &'static Context, code: CuResult) -> CuResult {
    match code {
        SUCCESS => publish(context, block),
        // Inside a host function of a stream: natively nothing is freed either.
        NOT_PERMITTED => block.give_back(),
        // A sticky error: natively the memory is lost with the context. Nothing is published, so
        // nothing that faulted work still touches is handed out.
        _ => stats::count(Count::Quarantined),
    }
    code
}

fn park(block: &LiveBlock, context: &'static Context) -> CuResult {
    match barrier::record(context, |_, _| SUCCESS) {
        Ok((event, _, _)) => {
            let ready = Ready::After { event: event.id() };
            tags::free(context, block.address, block.block, ready, Some(event));
            SUCCESS
        }
        Err(Refused::Capturing) if block.kind == Kind::Stream => park_for_barrier(block, context),
        Err(Refused::Failed(NOT_PERMITTED)) => conclude(block, context, NOT_PERMITTED),
        Err(_) => {
            let code = settle(context, Wait::Capture);
            conclude(block, context, code)
        }
    }
}

fn park_for_barrier(block: &LiveBlock, context: &Context) -> CuResult {
    tags::free(context, block.address, block.block, Ready::NextBarrier, None);
    SUCCESS
}

fn free_on_stream_of(block: &LiveBlock, stream: StreamHandle) -> CuResult {
    let context = block.context();
    let facts = facts(context);
    match free_on_stream(&facts) {
        StreamRoute::Publish => publish(context, block),
        StreamRoute::ParkForBarrier => return park_for_barrier(block, context),
        StreamRoute::Tag => return tag(block, context, stream),
    }
    SUCCESS
}

fn tag(block: &LiveBlock, context: &'static Context, stream: StreamHandle) -> CuResult {
    let mut id = 0;
    let code = api::stream_get_id(stream, &mut id);
    if code != SUCCESS {
        block.give_back();
        return code;
    }
    let event = match context.events.take(|body| context.enter(body)) {
        Ok(event) => event,
        Err(_) => return park_for_barrier(block, context),
    };
    let _in_order = tags::in_order(context);
    match api::relaxed(|| api::event_record(event.handle(), stream)) {
        SUCCESS => {
            let ready = Ready::OnStream { stream: StreamId(id), event: event.id() };
            tags::free(context, block.address, block.block, ready, Some(event));
            SUCCESS
        }
        code => {
            block.give_back();
            code
        }
    }
}

/// The block may be handed out from here on.
#[inline]
fn publish(context: &Context, block: &LiveBlock) {
    block.hold();
    let held = Held { address: block.address, bytes: block.bytes, block: block.block.0 };
    if let Err(out) = context.lookaside.put(held) {
        let mut allocator = lock(&context.allocator);
        extents::vacate(out.address);
        allocator.free(out.id(), Ready::Anyone);
        alloc::note_allocated(context, &allocator);
    }
}

#[inline]
fn facts(context: &Context) -> Facts {
    let config = config::get();
    let situation = Situation {
        mode: config.free_mode,
        context_id: context.id,
        capturing: captures::any(),
        barrier_calls: api::has_context_barrier(),
        // Not known beforehand: the driver's own calls say so with NOT_PERMITTED.
        in_driver_callback: false,
    };
    let mut facts = LEDGER.facts(&context.covers, situation);
    facts.ordered_quiet &= config.skip_barriers;
    facts.waited_quiet &= config.skip_barriers;
    facts
}

/// Codes that a free must show: those of a context that is lost, and "not from a callback".
fn reports(code: CuResult) -> bool {
    matches!(code, NOT_PERMITTED | 214 | 700 | 702 | 709 | 710 | 713..=721 | 999)
}

//! An allocation: from the thread cache, from the core, or, on a miss, by the core's steps.

use std::sync::MutexGuard;

use cachealloc_core::policy::undivided_block_bytes;
use cachealloc_core::{Allocator, Request, Requester};
use cachealloc_history::StackId;

use crate::cache::blocks::{self, Call};
use crate::cache::miss::miss_or_report;
use crate::config;
use crate::contexts::Context;
use crate::driver::sys::{CuResult, StreamHandle};
use crate::lock::lock;
use crate::process::thread::Thread;
use crate::record::{self, capture};

/// A block for the program, or the driver's code.
#[inline(always)]
pub(crate) fn allocate(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    if !config::allocates_simply() {
        return allocate_specially(thread, context, bytes, requester, stream);
    }
    let block_bytes = undivided_block_bytes(bytes);
    match block_bytes.and_then(|found| context.thread_cache.take(thread, found, bytes)) {
        Some(cached) => Ok(blocks::hand_out_cached(context, cached, bytes, requester)),
        None => from_core(thread, context, bytes, block_bytes, requester, stream),
    }
}

/// The same in any case.
#[cold]
fn allocate_specially(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    let is_recorded = record::is_on();
    let stack = if is_recorded { capture::of_allocation() } else { StackId::NONE };
    let call = Call { requester, stream, stack };
    // Recording happens under the allocator's lock, which a thread cache would bypass.
    let recording = is_recorded.then(|| lock(&context.allocator));
    let wanted_bytes = bytes.saturating_add(config::zone_bytes());
    let block_bytes = config::get().policy.block_bytes(wanted_bytes);
    let cached = block_bytes.and_then(|found| context.thread_cache.take(thread, found, bytes));
    match (cached, recording) {
        (Some(cached), Some(mut allocator)) => {
            Ok(blocks::hand_out_cached_recorded(context, &mut allocator, cached, bytes, call))
        }
        (Some(cached), None) => Ok(blocks::hand_out_cached(context, cached, bytes, requester)),
        (None, recording) => {
            let allocator = recording.unwrap_or_else(|| lock(&context.allocator));
            from_core_locked(thread, context, wanted_bytes, block_bytes, call, allocator)
        }
    }
}

#[inline(never)]
fn from_core(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    block_bytes: Option<u64>,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    let call = Call { requester, stream, stack: StackId::NONE };
    from_core_locked(thread, context, bytes, block_bytes, call, lock(&context.allocator))
}

/// `bytes` with the red zone, if there is one.
#[inline(always)]
fn from_core_locked(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    block_bytes: Option<u64>,
    call: Call,
    mut allocator: MutexGuard<Allocator>,
) -> CuResult<u64> {
    context
        .thread_cache
        .empty_own(thread, |cached| blocks::take_back(context, &mut allocator, cached));
    let found = match block_bytes {
        Some(block_bytes) => allocator.hit_new(bytes, block_bytes, call.requester),
        None => None,
    };
    match found {
        Some(allocation) => Ok(blocks::hand_out(context, &mut allocator, allocation, call)),
        None => {
            drop(allocator);
            miss_or_report(context, Request::new(bytes, call.requester), call)
        }
    }
}

//! An allocation: from the thread cache, from the core, or, on a miss, by the core's steps.

use std::sync::MutexGuard;

use cachealloc_core::{Allocator, Request, Requester};
use cachealloc_history::StackId;

use crate::cache::blocks::{self, Call};
use crate::cache::miss::miss_or_report;
use crate::cache::thread_cache::CachedBlock;
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
    if record::is_on() {
        return allocate_recorded(thread, context, bytes, requester, stream);
    }
    match take_cached(thread, context, bytes) {
        Some(cached) => Ok(blocks::hand_out_cached(context, cached, bytes, requester)),
        None => {
            let call = Call { requester, stream, stack: StackId::NONE };
            from_core(thread, context, bytes, call, None)
        }
    }
}

/// Recording happens under the allocator's lock, which a thread cache would bypass.
#[cold]
fn allocate_recorded(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    let call = Call { requester, stream, stack: capture::of_allocation() };
    let mut recording = lock(&context.allocator);
    match take_cached(thread, context, bytes) {
        Some(cached) => {
            Ok(blocks::hand_out_cached_recorded(context, &mut recording, cached, bytes, call))
        }
        None => from_core(thread, context, bytes, call, Some(recording)),
    }
}

#[inline(always)]
fn take_cached(thread: &Thread, context: &Context, bytes: u64) -> Option<CachedBlock> {
    let block_bytes = config::get().policy.block_bytes(with_zone(bytes))?;
    context.thread_cache.take(thread, block_bytes, bytes)
}

#[inline]
fn with_zone(bytes: u64) -> u64 {
    bytes.saturating_add(config::zone_bytes())
}

#[inline(never)]
fn from_core(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    call: Call,
    recording: Option<MutexGuard<Allocator>>,
) -> CuResult<u64> {
    let request = Request::new(with_zone(bytes), call.requester);
    let mut allocator = recording.unwrap_or_else(|| lock(&context.allocator));
    context
        .thread_cache
        .empty_own(thread, |cached| blocks::take_back(context, &mut allocator, cached));
    match allocator.hit(&request) {
        Some(allocation) => Ok(blocks::hand_out(context, &mut allocator, allocation, call)),
        None => {
            drop(allocator);
            miss_or_report(context, request, call)
        }
    }
}

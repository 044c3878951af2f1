//! An allocation: from the thread cache, from the core, or, on a miss, by the core's steps.

use cachealloc_core::{Request, Requester};

use crate::cache::blocks::{self, Call};
use crate::cache::miss::miss_or_report;
use crate::config;
use crate::contexts::Context;
use crate::driver::sys::{CuResult, StreamHandle};
use crate::lock::lock;
use crate::process::thread::Thread;
use crate::record::{self, capture};

/// A block for the program, or the driver's code.
#[inline]
pub(crate) fn allocate(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    let call = Call { requester, stream, stack: capture::of_allocation() };
    // Recording happens under the allocator's lock, which a thread cache would bypass.
    let mut recording = record::is_on().then(|| lock(&context.allocator));
    let with_zone = bytes.saturating_add(config::zone_bytes());
    if let Some(block_bytes) = config::get().policy.block_bytes(with_zone)
        && let Some(cached) = context.thread_cache.take(thread, block_bytes, bytes)
    {
        let recording = recording.as_deref_mut();
        return Ok(blocks::hand_out_cached(context, recording, cached, bytes, call));
    }
    let request = Request::new(with_zone, requester);
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

//! The process-wide part of the strategy `pre_allocate`: the size of the next chunk, and which
//! requests are too large for any chunk. The core's Note [Chunks] in policy.rs defines a chunk.

use cachealloc_core::Request;
use cachealloc_options::Strategy;

use crate::config;
use crate::driver::api;
use crate::driver_memory::limits;
use crate::lock::lock;
use crate::state::contexts::Context;

/// Gives the core the size of the next chunk. Call this before a miss. Returns `true` if the
/// request is too large for a chunk; then the driver serves it.
pub(crate) fn prepare(context: &Context, request: &Request) -> bool {
    let config = config::get();
    if config.strategy != Strategy::PreAllocate {
        return false;
    }
    let free_bytes = free_bytes(context);
    // Paddle does the same: the intended size of the first chunk decides permanently.
    let request_max =
        *context.chunk_request_max.get_or_init(|| config.chunks.request_bytes_max(free_bytes));
    let mut allocator = lock(&context.allocator);
    let first = allocator.stats().segment.all.current == 0;
    allocator.set_chunk(config.chunks.bytes(first, free_bytes));
    request.bytes() > request_max
}

/// Bytes free on the device, within the limit.
fn free_bytes(context: &Context) -> u64 {
    let info = api::relaxed(|| context.enter(api::mem_get_info));
    info.map_or(0, |(free, _)| limits::left(context.device).min(free as u64))
}

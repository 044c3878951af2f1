//! The strategy `pre_allocate`, where the process comes in: how large the next chunk is, and which
//! requests are too large for any. What a chunk is, the core knows: Note [Chunks] in policy.rs.

use cachealloc_core::Request;
use cachealloc_options::Strategy;

use crate::config;
use crate::contexts::Context;
use crate::driver::api;
use crate::driver::sys::SUCCESS;
use crate::driver_memory::limits;
use crate::lock::lock;

/// Tells the core the size of the next chunk. Call before a miss. True: the request is too large
/// for a chunk, and the driver's to serve.
pub fn prepare(context: &Context, request: &Request) -> bool {
    let config = config::get();
    if config.strategy != Strategy::PreAllocate {
        return false;
    }
    let free_bytes = free_bytes(context);
    // As Paddle does: what the first chunk was meant to be decides for good.
    let request_max =
        *context.chunk_request_max.get_or_init(|| config.chunks.request_bytes_max(free_bytes));
    let mut allocator = lock(&context.allocator);
    let first = allocator.stats().segment.all.current == 0;
    allocator.set_chunk(config.chunks.bytes(first, free_bytes));
    request.bytes() > request_max
}

/// Of the device, as far as the limit leaves it.
fn free_bytes(context: &Context) -> u64 {
    let (mut free, mut total) = (0, 0);
    let code = api::relaxed(|| context.enter(&mut || api::mem_get_info(&mut free, &mut total)));
    if code == SUCCESS { limits::left(context.device).min(free as u64) } else { 0 }
}

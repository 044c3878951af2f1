//! Moves blocks between the program, the thread caches and the core, with pagemap, statistics and history.
//! Hits and frees of the thread cache (`alloc`, `publish`) and frees that wait (`stream_frees`, `private_pools`)
//! do their own.

use std::sync::atomic::Ordering;

use cachealloc_core::{Allocation, Allocator, Behind, BlockId, Ready, Requester};
use cachealloc_history::StackId;

use crate::cache::thread_cache::CachedBlock;
use crate::config;
use crate::contexts::Context;
use crate::contexts::events::{self, EventRef};
use crate::driver::sys::StreamHandle;
use crate::lock::lock;
use crate::pagemap::{self, Kind};
use crate::record::recorder::{Allocated, Freed};

/// Which request this is, and from where in the program.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub requester: Requester,
    /// The stream of a stream-ordered request.
    pub stream: StreamHandle,
    pub stack: StackId,
}

/// Returns every cached block to the core, where it merges with its neighbours.
pub(crate) fn empty_lists(context: &Context) {
    take_back_all(context, &mut lock(&context.allocator));
}

/// As `empty_lists`, under the allocator's lock.
pub(crate) fn take_back_all(context: &Context, allocator: &mut Allocator) {
    context.thread_cache.empty(|cached| take_back(context, allocator, cached));
    note_allocated(context, allocator);
}

/// A cached block merges into the core. The slot first: its next owner writes it under this lock.
pub(crate) fn take_back(context: &Context, allocator: &mut Allocator, cached: CachedBlock) {
    context.correction.left_list(allocator, cached.id());
    pagemap::vacate(cached.address);
    free_block(allocator, cached.id(), Ready::Everywhere);
}

/// A block that enters no thread cache goes to the core.
pub(crate) fn free_past_lists(context: &Context, allocator: &mut Allocator, freed: Freed) {
    context.correction.passed_by(allocator, freed.block, freed.requested_bytes);
    pagemap::vacate(freed.address);
    free_block(allocator, freed.block, Ready::Everywhere);
}

/// Every free of a block ends here. Returns what the block was handed out behind (`hand_out`).
pub(crate) fn free_block(
    allocator: &mut Allocator,
    block: BlockId,
    ready: Ready,
) -> Option<(Behind, EventRef)> {
    let behind = allocator.free(block, ready)?;
    Some((behind, events::take_kept(behind.event()?)?))
}

/// Mirrors the core's allocated bytes for readers without its lock.
pub(crate) fn note_allocated(context: &Context, allocator: &Allocator) {
    let bytes = allocator.stats().allocated_bytes.all.current;
    context.core_allocated_bytes.store(bytes, Ordering::Relaxed);
}

/// Gives the block to the program, under the allocator's lock.
pub(crate) fn hand_out(
    context: &Context,
    allocator: &mut Allocator,
    block: Allocation,
    call: Call,
) -> u64 {
    record_taken(context, allocator, &block, call);
    hand_out_recorded(context, allocator, block, call)
}

/// The core has taken the block for a request. Recorded under the same lock, though the program gets it
/// later: a concurrent reader finds it in use.
pub(crate) fn record_taken(
    context: &Context,
    allocator: &mut Allocator,
    block: &Allocation,
    call: Call,
) {
    let requested_bytes = block.requested_bytes - config::zone_bytes();
    let allocated = Allocated {
        block: block.block,
        address: block.address.0,
        bytes: block.bytes,
        requested_bytes,
    };
    context.recorder.allocated(allocator, allocated, call.requester, call.stack);
}

/// As `hand_out`, for a block already recorded by `record_taken`.
pub(crate) fn hand_out_recorded(
    context: &Context,
    allocator: &mut Allocator,
    block: Allocation,
    call: Call,
) -> u64 {
    let kind = kind_of(call.requester);
    let address = block.address;
    // Until now a tag referred to the event, under this lock.
    if let Some(event) = block.behind {
        events::keep(event);
    }
    let requested_bytes = block.requested_bytes - config::zone_bytes();
    pagemap::occupy(address.0, kind, block.bytes, requested_bytes, block.block);
    note_allocated(context, allocator);
    note_peak(context);
    block.address.0
}

/// Updates the peak of what the program holds: the core's count minus what is in the thread caches. Only
/// if the core's count exceeds the peak so far can there be a new one; the thread caches, a cache line
/// each, are read only then.
#[inline]
pub(crate) fn note_peak(context: &Context) {
    let counted = context.core_allocated_bytes.load(Ordering::Relaxed);
    if counted > context.allocated_bytes_peak.load(Ordering::Relaxed) {
        note_new_peak(context, counted);
    }
}

#[cold]
fn note_new_peak(context: &Context, counted: u64) {
    let allocated = counted.saturating_sub(context.thread_cache.cached_bytes());
    context.allocated_bytes_peak.fetch_max(allocated, Ordering::Relaxed);
}

pub(crate) fn kind_of(requester: Requester) -> Kind {
    match requester {
        Requester::Context => Kind::Context,
        Requester::Stream(_) => Kind::Stream,
    }
}

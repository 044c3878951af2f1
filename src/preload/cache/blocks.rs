//! Moves blocks between the program, the thread caches and the core. Everything that such a move
//! changes is changed here: the slot, the entry of the history, the counts, the core.

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{
    Allocation, Allocator, Behind, BlockId, PlainHit, Requester, ReuseCondition,
};
use cachealloc_history::StackId;

use crate::config;
use crate::driver::sys::StreamHandle;
use crate::driver_memory::limits;
use crate::lock::lock;
use crate::pagemap;
use crate::pagemap::{Claimed, Kind, LiveBlock};
use crate::process::bypass;
use crate::record;
use crate::record::recorder::{Allocated, Freed};
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::events;
use crate::state::events::EventRef;
use crate::state::thread::Thread;
use crate::state::thread_cache::{CacheInsert, CachedBlock};

/// Kind of request, and the place in the program that made it.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub requester: Requester,
    /// Stream of a stream-ordered request.
    pub stream: StreamHandle,
    pub stack: StackId,
}

/// Returns every cached block to the core, where it merges with adjacent blocks.
pub(crate) fn empty_lists(context: &Context) {
    take_back_all(context, &mut lock(&context.allocator));
}

/// Returns cached blocks to the core for a request of this size that it has no memory for.
pub(crate) fn empty_lists_for_miss(thread: &Thread, context: &Context, bytes: u64) {
    let mut allocator = lock(&context.allocator);
    let is_plentiful = allocator.is_memory_plentiful();
    let each = |cached| take_back(context, &mut allocator, cached);
    context.thread_cache.empty_for_miss(thread, bytes, is_plentiful, each);
}

/// Does what `empty_lists` does, for a caller that holds the allocator's lock.
pub(crate) fn take_back_all(context: &Context, allocator: &mut Allocator) {
    context.thread_cache.empty(|cached| take_back(context, allocator, cached));
}

/// Empties the lists of a thread that ends, and makes its seat available to another thread.
pub(crate) fn thread_ended(thread: &Thread) {
    let in_hook = thread.inside.replace(true);
    if bypass::is_caching() {
        for context in contexts::all().filter(|context| context.thread_cache.has_own(thread)) {
            let mut allocator = lock(&context.allocator);
            // A dead context is skipped: another context may have these addresses by now.
            if !context.is_dead() {
                let out = |cached| take_back(context, &mut allocator, cached);
                context.thread_cache.leave(thread, out);
            }
        }
    }
    thread.leave_seat();
    thread.inside.set(in_hook);
}

/// Returns a cached block to the core, where it merges.
#[inline(never)]
pub(crate) fn take_back(context: &Context, allocator: &mut Allocator, cached: CachedBlock) {
    context.correction.left_list(allocator, cached.id());
    // The slot first: its next owner writes it under this lock.
    pagemap::vacate_of(context, cached.address);
    free_in_core(context, allocator, cached.id(), ReuseCondition::Everywhere);
}

/// Frees the program's block into the core, where it waits for the condition `ready`. The caller
/// must hold the allocator's lock. Returns the event that the block's user had to wait for when it
/// was handed out (`hand_out`).
pub(crate) fn free(
    context: &Context,
    allocator: &mut Allocator,
    freed: Freed,
    ready: ReuseCondition,
) -> Option<(Behind, EventRef)> {
    match allocator.ready_if_freed(freed.block, ready).is_pending() {
        true => context.recorder.free_requested(allocator, freed),
        false => context.recorder.freed(allocator, freed),
    }
    end(context, allocator, freed.block, freed.address, freed.requested_bytes);
    free_in_core(context, allocator, freed.block, ready)
}

/// Frees the block into a list of the thread cache, or into the core if no list takes it. Only for
/// frees that are not recorded. The caller must not hold the allocator's lock.
#[inline(always)]
pub(crate) fn free_into_list(thread: &Thread, context: &Context, block: &LiveBlock) {
    if let Err(out) = put_into_list(thread, context, block) {
        if out.id() == block.block && keep_regular(thread, context, block, || ()) {
            return;
        }
        put_into_core(context, &mut lock(&context.allocator), out, block);
    }
}

/// Does what `free_into_list` does for a recorded free: under the lock that orders the entry's
/// event.
#[cold]
pub(crate) fn free_into_list_recorded(
    thread: &Thread,
    context: &Context,
    block: &LiveBlock,
    freed: Freed,
) {
    let mut allocator = lock(&context.allocator);
    context.recorder.freed(&mut allocator, freed);
    if let Err(out) = put_into_list(thread, context, block) {
        put_into_core(context, &mut allocator, out, block);
    }
}

/// Puts the block into the thread's list. Returns in `Err` the block that must go to the core
/// instead: this one, or an older one.
#[inline(always)]
fn put_into_list(thread: &Thread, context: &Context, block: &LiveBlock) -> Result<(), CachedBlock> {
    block.mark_cached();
    context.thread_cache.settle(thread);
    let LiveBlock { block: id, address, bytes, requested_bytes, .. } = *block;
    let cached = CachedBlock { address, bytes, block: id.0, slot: block.slot() };
    context.thread_cache.put(thread, cached, requested_bytes)
}

/// Puts a claimed block into the thread's list, if that has a place for it. Only for contexts in
/// which nothing is recorded. Any result but `CacheInsert::Cached` leaves everything unchanged.
#[inline(always)]
pub(crate) fn offer_to_list(
    thread: &Thread,
    context: &Context,
    claimed: Claimed,
    address: u64,
) -> CacheInsert {
    let (bytes, slack_bytes) = claimed.sizes();
    let Claimed { slot, word, .. } = claimed;
    let cached = CachedBlock { address, bytes, block: slot.block().0, slot };
    context.thread_cache.offer(thread, cached, bytes - slack_bytes, word)
}

/// Keeps a freed block of a size that the thread requests regularly, if possible
/// (`ThreadCache::keep`).
fn keep_regular(
    thread: &Thread,
    context: &Context,
    block: &LiveBlock,
    mark: impl FnOnce(),
) -> bool {
    let LiveBlock { block: id, address, bytes, requested_bytes, .. } = *block;
    let cached = CachedBlock { address, bytes, block: id.0, slot: block.slot() };
    let most_bytes = |is_scarce| {
        let part = if is_scarce { REGULAR_BYTES_PART_SCARCE } else { REGULAR_BYTES_PART };
        limits::most(context) / part
    };
    context.thread_cache.keep(thread, cached, requested_bytes, most_bytes, mark)
}

/// Threads keep at most one byte in this many of the device memory, or of the limit, for their
/// regular sizes: much less than an allocator that merges late would leave between blocks.
const REGULAR_BYTES_PART: u64 = 1024;
/// The part where memory is scarce: a kept block may lie where a larger one would fit, which the
/// program may need by then.
const REGULAR_BYTES_PART_SCARCE: u64 = 32 * REGULAR_BYTES_PART;

/// Frees the block without trying the list. Only where there are no red zones.
#[inline(always)]
pub(crate) fn free_past_list(thread: &Thread, context: &Context, block: &LiveBlock) {
    if keep_regular(thread, context, block, || block.mark_cached()) {
        return;
    }
    put_own_into_core(context, &mut lock(&context.allocator), block, block.requested_bytes);
}

/// Frees into the core the block that the list did not take when `block` was freed.
#[inline(always)]
fn put_into_core(
    context: &Context,
    allocator: &mut Allocator,
    out: CachedBlock,
    block: &LiveBlock,
) {
    match out.id() == block.block {
        true => put_own_into_core(context, allocator, block, block.requested()),
        false => take_back(context, allocator, out),
    }
}

/// Frees the block itself, of which `requested_bytes` were requested, into the core.
#[inline(always)]
fn put_own_into_core(
    context: &Context,
    allocator: &mut Allocator,
    block: &LiveBlock,
    requested_bytes: u64,
) {
    block.vacate();
    if let Some((pool, known_bytes)) = allocator.free_plain(block.block) {
        context.correction.passed(pool, known_bytes, requested_bytes);
        note_allocated(context, allocator);
    } else {
        context.correction.passed_by(allocator, block.block, requested_bytes);
        free_in_core(context, allocator, block.block, ReuseCondition::Everywhere);
    }
}

/// Frees a block of a private pool that no node references and no work uses.
pub(crate) fn free_unused(context: &Context, allocator: &mut Allocator, freed: Freed) {
    context.recorder.freed(allocator, freed);
    end(context, allocator, freed.block, freed.address, freed.requested_bytes);
    allocator.free_unused(freed.block);
    note_allocated(context, allocator);
}

/// Ends the program's ownership of the block.
fn end(
    context: &Context,
    allocator: &Allocator,
    block: BlockId,
    address: u64,
    requested_bytes: u64,
) {
    pagemap::vacate(address);
    context.correction.passed_by(allocator, block, requested_bytes);
}

#[inline(never)]
fn free_in_core(
    context: &Context,
    allocator: &mut Allocator,
    block: BlockId,
    ready: ReuseCondition,
) -> Option<(Behind, EventRef)> {
    let behind = allocator.free(block, ready);
    note_allocated(context, allocator);
    let behind = behind?;
    Some((behind, events::take_kept(behind.event()?)?))
}

/// Makes the block that the program is about to get wait for this event, and no longer for the
/// event it was handed out with, if there was one. See `Allocator::is_now_behind`.
pub(super) fn is_now_behind(context: &Context, block: BlockId, event: &EventRef) {
    events::keep(event.id());
    let before = lock(&context.allocator).is_now_behind(block, event.id());
    drop(before.and_then(events::take_kept));
}

/// Mirrors the core's allocated bytes for readers without its lock.
pub(super) fn note_allocated(context: &Context, allocator: &Allocator) -> u64 {
    let allocated = allocator.allocated_bytes();
    context.core_allocated_bytes.store(allocated, Ordering::Relaxed);
    allocated
}

/// Gives a block of a thread cache to the program. Only where nothing is recorded. `slack_bytes` is
/// the size of the block beyond what was requested. Call `note_peak` afterwards. Returns `false` if
/// the block is `not_cached`.
#[inline(always)]
pub(crate) fn hand_out_cached(cached: CachedBlock, slack_bytes: u64, requester: Requester) -> bool {
    cached.slot.occupy_cached(kind_of(requester), cached.bytes, slack_bytes)
}

/// Handles a list entry that is not cached. Its segment was released with its context; otherwise
/// this is a bug of the library.
#[cold]
#[inline(never)]
pub(crate) fn not_cached(context: &Context) {
    if !context.is_dead() && !context.is_ending() {
        bypass::begin(format_args!("a thread cache list has a block that is not cached"));
    }
}

/// Does what `hand_out_cached` does where allocations are recorded. Takes the allocator, because
/// entries are made under its lock.
pub(crate) fn hand_out_cached_recorded(
    context: &Context,
    allocator: &mut Allocator,
    cached: CachedBlock,
    requested_bytes: u64,
    call: Call,
) -> bool {
    let CachedBlock { address, bytes, .. } = cached;
    let is_cached = hand_out_cached(cached, bytes - requested_bytes, call.requester);
    if is_cached {
        let allocated = Allocated { block: cached.id(), address, bytes, requested_bytes };
        context.recorder.allocated(allocator, allocated, call.requester, call.stack);
    }
    is_cached
}

/// Gives the block to the program, under the allocator's lock.
#[inline(always)]
pub(crate) fn hand_out(
    context: &Context,
    allocator: &mut Allocator,
    block: Allocation,
    call: Call,
) -> u64 {
    record_taken(context, allocator, &block, call);
    hand_out_recorded(context, allocator, block, call)
}

/// Gives a plain block to the program, for a request of the context where there are no red zones.
/// Returns its address, and what the core counts as allocated: call `note_peak_of` with it when
/// the lock is released.
#[inline(always)]
pub(crate) fn hand_out_plain(
    context: &Context,
    allocator: &mut Allocator,
    plain: PlainHit,
    requested_bytes: u64,
) -> (u64, u64) {
    let PlainHit { block, address, bytes } = plain;
    if record::is_on() {
        note_plain_taken(context, allocator, plain, requested_bytes);
    }
    pagemap::occupy(address.0, Kind::Context, bytes, requested_bytes, block);
    (address.0, note_allocated(context, allocator))
}

/// Records the block: recording began after the request had started.
#[cold]
fn note_plain_taken(
    context: &Context,
    allocator: &mut Allocator,
    plain: PlainHit,
    requested_bytes: u64,
) {
    let PlainHit { block, address, bytes } = plain;
    let allocated = Allocated { block, address: address.0, bytes, requested_bytes };
    context.recorder.allocated(allocator, allocated, Requester::Context, StackId::NONE);
}

/// Records that the core has taken the block for a request. This happens under the same lock,
/// though the program may get the block later: a concurrent reader finds it in use.
#[inline(always)]
pub(crate) fn record_taken(
    context: &Context,
    allocator: &mut Allocator,
    block: &Allocation,
    call: Call,
) {
    if rule_holds(Rule::ArrivedKeepsEvent) {
        keep_event(block);
    }
    if record::is_on() {
        note_taken(context, allocator, block, call);
    }
}

#[cold]
fn note_taken(context: &Context, allocator: &mut Allocator, block: &Allocation, call: Call) {
    let requested_bytes = block.requested_bytes - config::zone_bytes();
    let Allocation { block, address, bytes, .. } = *block;
    let allocated = Allocated { block, address: address.0, bytes, requested_bytes };
    context.recorder.allocated(allocator, allocated, call.requester, call.stack);
}

/// Keeps the event that a reuse condition referred to until now. Once the lock is released, the
/// event could complete and be recorded for another free.
fn keep_event(block: &Allocation) {
    if let Some(event) = block.behind {
        events::keep(event);
    }
}

/// Gives the program a block that `record_taken` has already recorded.
#[inline(always)]
pub(crate) fn hand_out_recorded(
    context: &Context,
    allocator: &mut Allocator,
    block: Allocation,
    call: Call,
) -> u64 {
    let kind = kind_of(call.requester);
    let address = block.address;
    if !rule_holds(Rule::ArrivedKeepsEvent) {
        keep_event(&block);
    }
    let requested_bytes = block.requested_bytes - config::zone_bytes();
    pagemap::occupy(address.0, kind, block.bytes, requested_bytes, block.block);
    let counted = note_allocated(context, allocator);
    if counted > context.allocated_bytes_peak.load(Ordering::Relaxed) {
        note_new_peak(context, counted);
    }
    block.address.0
}

/// Updates the peak of the memory the program holds, after this thread's list gave a block. That
/// memory is the core's count minus the contents of the thread caches.
#[inline(always)]
pub(crate) fn note_peak(thread: &Thread, context: &Context) {
    note_peak_of(thread, context, context.core_allocated_bytes.load(Ordering::Relaxed));
}

/// Returns whether `note_peak` has something to do: the core counts more than the last peak.
#[inline(always)]
pub(crate) fn may_be_peak(context: &Context) -> bool {
    let counted = context.core_allocated_bytes.load(Ordering::Relaxed);
    counted > context.allocated_bytes_peak.load(Ordering::Relaxed)
}

/// Updates the peak where the core counts this much.
#[inline(always)]
pub(crate) fn note_peak_of(thread: &Thread, context: &Context, counted: u64) {
    let peak = context.allocated_bytes_peak.load(Ordering::Relaxed);
    if counted > peak {
        note_possible_peak(thread, context, counted, peak);
    }
}

#[cold]
#[inline(never)]
fn note_possible_peak(thread: &Thread, context: &Context, counted: u64, peak: u64) {
    if context.thread_cache.sample_is_due(thread, counted, peak) {
        note_new_peak(context, counted);
    }
}

#[cold]
fn note_new_peak(context: &Context, counted: u64) {
    let allocated = counted.saturating_sub(context.thread_cache.cached_bytes());
    if allocated > context.allocated_bytes_peak.load(Ordering::Relaxed) {
        context.allocated_bytes_peak.fetch_max(allocated, Ordering::Relaxed);
    }
}

fn kind_of(requester: Requester) -> Kind {
    match requester {
        Requester::Context => Kind::Context,
        Requester::Stream(_) => Kind::Stream,
    }
}

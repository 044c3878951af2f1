//! Moves blocks between the program, the thread caches and the core. Whatever such a move changes, it
//! changes here: the slot, the entry of the history, the counts, the core.

use std::sync::atomic::Ordering;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{
    Allocation, Allocator, Behind, BlockId, PlainHit, Requester, ReuseCondition,
};
use cachealloc_history::StackId;

use crate::config;
use crate::driver::sys::StreamHandle;
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
}

/// The thread ends: its lists are empty from here on, and its seat goes to another thread.
pub(crate) fn thread_ended(thread: &Thread) {
    let in_hook = thread.inside.replace(true);
    if bypass::is_caching() {
        for context in contexts::all().filter(|context| context.thread_cache.has_own(thread)) {
            let mut allocator = lock(&context.allocator);
            // Not what another context has at these addresses by now.
            if !context.is_dead() {
                let out = |cached| take_back(context, &mut allocator, cached);
                context.thread_cache.leave(thread, out);
            }
        }
    }
    thread.leave_seat();
    thread.inside.set(in_hook);
}

/// A cached block merges into the core.
#[inline(never)]
pub(crate) fn take_back(context: &Context, allocator: &mut Allocator, cached: CachedBlock) {
    context.correction.left_list(allocator, cached.id());
    // The slot first: its next owner writes it under this lock.
    pagemap::vacate(cached.address);
    free_in_core(context, allocator, cached.id(), ReuseCondition::Everywhere);
}

/// The program's block goes to the core, where it waits for what `ready` says. Call under the
/// allocator's lock. Returns what the block was handed out behind (`hand_out`).
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

/// As `free`, but into a list of the thread cache, if one takes it, and where nothing is recorded. Call
/// without the allocator's lock.
#[inline(always)]
pub(crate) fn free_into_list(thread: &Thread, context: &Context, block: &LiveBlock) {
    if let Err(out) = put_into_list(thread, context, block) {
        if out.id() == block.block && keep_regular(thread, context, block, || ()) {
            return;
        }
        put_into_core(context, &mut lock(&context.allocator), out, block);
    }
}

/// The same where the free is recorded: under the lock that orders the entry's event.
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

/// `Err` returns what must go to the core instead: this block, or an older one.
#[inline(always)]
fn put_into_list(thread: &Thread, context: &Context, block: &LiveBlock) -> Result<(), CachedBlock> {
    block.mark_cached();
    context.thread_cache.settle(thread);
    let LiveBlock { block: id, address, bytes, requested_bytes, .. } = *block;
    let cached = CachedBlock { address, bytes, block: id.0, slot: block.slot() };
    context.thread_cache.put(thread, cached, requested_bytes)
}

/// Into a list of the thread cache, if it has a place for the block, of a context in which nothing is recorded. Else
/// nothing has changed.
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

/// Keeps a freed block of a size that the thread asks for again and again, if it can (`ThreadCache::keep`).
fn keep_regular(
    thread: &Thread,
    context: &Context,
    block: &LiveBlock,
    mark: impl FnOnce(),
) -> bool {
    let LiveBlock { block: id, address, bytes, requested_bytes, .. } = *block;
    let cached = CachedBlock { address, bytes, block: id.0, slot: block.slot() };
    let most_bytes = context.device_bytes / REGULAR_BYTES_PART;
    context.thread_cache.keep(thread, cached, requested_bytes, most_bytes, mark)
}

/// Of the memory of the device, threads keep one byte in so many for their regular sizes: much less than an allocator that
/// merges late would leave between blocks.
const REGULAR_BYTES_PART: u64 = 1024;

/// As `free_into_list`, past the list, where there are no red zones.
#[inline(always)]
pub(crate) fn free_past_list(thread: &Thread, context: &Context, block: &LiveBlock) {
    if keep_regular(thread, context, block, || block.mark_cached()) {
        return;
    }
    put_own_into_core(context, &mut lock(&context.allocator), block, block.requested_bytes);
}

/// What the list did not take, when this block was freed.
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

/// The block that was freed, of which so much was requested.
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

/// As `free`, for a block of a private pool that no node and no work uses.
pub(crate) fn free_unused(context: &Context, allocator: &mut Allocator, freed: Freed) {
    context.recorder.freed(allocator, freed);
    end(context, allocator, freed.block, freed.address, freed.requested_bytes);
    allocator.free_unused(freed.block);
    note_allocated(context, allocator);
}

/// The block is the program's no more.
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

/// The block that the program is about to get is behind this event of its stream, and no more behind what it was
/// handed out behind.
pub(super) fn is_now_behind(context: &Context, block: BlockId, event: &EventRef) {
    let before = lock(&context.allocator).is_now_behind(block, event.id());
    if let Some(before) = before {
        events::keep(event.id());
        drop(events::take_kept(before));
    }
}

/// Mirrors the core's allocated bytes for readers without its lock.
pub(super) fn note_allocated(context: &Context, allocator: &Allocator) -> u64 {
    let allocated = allocator.allocated_bytes();
    context.core_allocated_bytes.store(allocated, Ordering::Relaxed);
    allocated
}

/// Gives a block of a thread cache to the program, where nothing is recorded. `slack_bytes`: as many as it has more than
/// were requested. Call `note_peak` behind it. False: the block is `not_cached`.
#[inline(always)]
pub(crate) fn hand_out_cached(cached: CachedBlock, slack_bytes: u64, requester: Requester) -> bool {
    cached.slot.occupy_cached(kind_of(requester), cached.bytes, slack_bytes)
}

/// A list had a block that is not cached: its segment has gone, with the context. Else that is a fault of ours.
#[cold]
#[inline(never)]
pub(crate) fn not_cached(context: &Context) {
    if !context.is_dead() && !context.is_ending() {
        bypass::begin(format_args!("a list has a block that is not cached"));
    }
}

/// The same where it is recorded: under the allocator's lock, under which entries are made.
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

/// The same of a plain block, for a request of the context where there are no red zones.
#[inline(always)]
pub(crate) fn hand_out_plain(
    context: &Context,
    allocator: &mut Allocator,
    plain: PlainHit,
    requested_bytes: u64,
) -> u64 {
    let PlainHit { block, address, bytes } = plain;
    if record::is_on() {
        note_plain_taken(context, allocator, plain, requested_bytes);
    }
    pagemap::occupy(address.0, Kind::Context, bytes, requested_bytes, block);
    let counted = note_allocated(context, allocator);
    note_peak_of(context, counted);
    address.0
}

/// Recording has just begun.
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

/// The core has taken the block for a request. Recorded under the same lock, though the program may get it
/// later: a concurrent reader finds it in use.
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

/// Until now a tag referred to the event. Without the lock it may be over, and recorded for another free.
fn keep_event(block: &Allocation) {
    if let Some(event) = block.behind {
        events::keep(event);
    }
}

/// As `hand_out`, for a block already recorded by `record_taken`.
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
    note_peak_of(context, counted);
    block.address.0
}

/// Updates the peak of what the program holds, after this thread's list gave a block: the core's count minus what is in the
/// thread caches. Only if the core's count exceeds the peak so far can there be a new one.
#[inline(always)]
pub(crate) fn note_peak(thread: &Thread, context: &Context) {
    let counted = context.core_allocated_bytes.load(Ordering::Relaxed);
    if counted > context.allocated_bytes_peak.load(Ordering::Relaxed) {
        note_peak_of_list(thread, context, counted);
    }
}

#[cold]
#[inline(never)]
fn note_peak_of_list(thread: &Thread, context: &Context, counted: u64) {
    if context.thread_cache.sample_is_due(thread, counted) {
        note_new_peak(context, counted);
    }
}

/// The same after the core gave a block.
#[inline(always)]
fn note_peak_of(context: &Context, counted: u64) {
    if counted > context.allocated_bytes_peak.load(Ordering::Relaxed) {
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

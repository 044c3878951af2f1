//! The history of one context's memory. Every entry is made under the lock of the context's
//! allocator, right after the allocator changed: so entries and blocks are consistent whenever that
//! lock is free. The recorder's lock is a leaf, free whenever the allocator's is held.

use core::sync::atomic::{Ordering, compiler_fence};
use std::collections::BTreeMap;
use std::sync::Mutex;

use cachealloc_core::{
    Address, Allocator, BlockId, BlockView, Mapping, Pool, PrivatePool, Requester, Segment,
    SegmentView,
};
use cachealloc_history::persistent::layout::{
    BlockRow, FREE, IS_EXPANDABLE, IS_SMALL, IS_THERE, LIVE, PENDING, SegmentRow,
};
use cachealloc_history::{Action, Entry, NO_RANGE, Ring, Rows, RowsCopy, StackId};
use cachealloc_options::{Record, StackContext};

use crate::clock::now_ns;
use crate::lock::lock;
use crate::record::holders::{Holders, StackTotals};
use crate::record::persistent;
use crate::record::persistent::HistorySource;
use crate::record::ranges;
use crate::record::segments::Segments;
use crate::record::settings;

mod cut;
mod span;

pub(crate) use cut::{BlockSource, Cut};

/// The recorder of a context.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    /// Set from `begin` to `end`.
    on: bool,
    entries: Entries,
    /// The origin of each block, by its number. Stale for free blocks.
    blocks: Rows<BlockRow>,
    /// The copy of `blocks` that a snapshot is making, if any.
    copy: Option<RowsCopy<BlockRow>>,
    segments: Segments,
    /// The private pool of a segment, by its base, and the time since when it has been in that
    /// pool. Stale for other segments.
    pools: BTreeMap<u64, (PrivatePool, u64)>,
    holders: Holders,
}

#[derive(Default)]
struct Entries {
    /// Set if the history is persistent.
    source: Option<HistorySource>,
    /// `None` before the first entry.
    ring: Option<Ring>,
    /// The time of the events being recorded, if it is not the present.
    at_ns: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Origin {
    stack: StackId,
    stream: u64,
    /// The bytes requested for the block, kept here because the three entries of its life must
    /// agree exactly.
    requested_bytes: u64,
}

/// An allocated block.
#[derive(Clone, Copy)]
pub(crate) struct Allocated {
    pub block: BlockId,
    pub address: u64,
    pub bytes: u64,
    pub requested_bytes: u64,
}

/// A freed block, as the free knew it.
#[derive(Clone, Copy)]
pub(crate) struct Freed {
    pub block: BlockId,
    pub address: u64,
    /// The size requested from the cache, including the slack after the block.
    pub requested_bytes: u64,
    /// The stack of the free. With `NONE`, the entry shows that of the allocation.
    pub stack: StackId,
}

impl Recorder {
    /// Records a segment at this address that arrived from the driver.
    pub(crate) fn segment_reserved(&self, allocator: &Allocator, base: Address, stack: StackId) {
        let Some(mut recorded) = self.recorded() else { return };
        let Some(segment) = allocator.segment_around(base) else { return };
        let row = row_of(&segment, stack);
        let origin = Origin { stack, stream: row.stream, requested_bytes: 0 };
        recorded.note_pool(&segment);
        recorded.push(Action::SegmentAlloc, row.address, row.bytes, origin, stack);
        recorded.segments.insert(row);
    }

    /// Records that a snapshot was taken, with `active_bytes` in use on the device.
    pub(crate) fn snapshot_taken(&self, active_bytes: u64) {
        if let Some(mut recorded) = self.recorded() {
            let nobodys = Origin::default();
            recorded.push(Action::Snapshot, 0, active_bytes, nobodys, StackId::NONE);
        }
    }

    /// Records segments that have left the allocator. `caller` is the stack of the release; with
    /// `NONE`, the entry shows that of the reservation.
    pub(crate) fn segments_released(
        &self,
        allocator: &mut Allocator,
        segments: &[Segment],
        caller: StackId,
    ) {
        let Some(mut recorded) = self.recorded() else { return };
        recorded.take_completed(allocator);
        for segment in segments {
            recorded.segment_ended(Action::SegmentFree, segment.base.0, segment.bytes, caller);
        }
    }

    /// Records memory mapped at addresses of an arena.
    pub(crate) fn mapped(&self, allocator: &Allocator, mappings: &[Mapping], stack: StackId) {
        let Some(mut recorded) = self.recorded() else { return };
        let origin = Origin { stack, ..Origin::default() };
        for (base, bytes) in ranges(mappings) {
            recorded.push(Action::SegmentMap, base, bytes, origin, stack);
            let around = allocator.segment_around(Address(base));
            let row = around.map(|segment| row_of(&segment, stack)).unwrap_or_default();
            let flags = row.flags | IS_THERE | IS_EXPANDABLE;
            recorded.segments.insert(SegmentRow { address: base, bytes, stack, flags, ..row });
        }
    }

    /// Records memory unmapped from addresses of an arena. For `caller`, see `segments_released`.
    pub(crate) fn unmapped(
        &self,
        allocator: &mut Allocator,
        mappings: &[Mapping],
        caller: StackId,
    ) {
        let Some(mut recorded) = self.recorded() else { return };
        recorded.take_completed(allocator);
        for (base, bytes) in ranges(mappings) {
            recorded.segment_ended(Action::SegmentUnmap, base, bytes, caller);
        }
    }

    /// Records an allocated block.
    #[inline]
    pub(crate) fn allocated(
        &self,
        allocator: &mut Allocator,
        allocated: Allocated,
        requester: Requester,
        stack: StackId,
    ) {
        if crate::record::is_on() {
            self.note_allocated(allocator, allocated, requester, stack);
        }
    }

    #[inline(never)]
    fn note_allocated(
        &self,
        allocator: &mut Allocator,
        allocated: Allocated,
        requester: Requester,
        stack: StackId,
    ) {
        let Some(mut recorded) = self.recorded() else { return };
        recorded.take_completed(allocator);
        let Allocated { block, address, bytes, requested_bytes } = allocated;
        let stream = stream_of(requester);
        let origin = Origin { stack, stream, requested_bytes };
        if allocator.has_pools() {
            let around = allocator.segment_around(Address(address));
            around.iter().for_each(|segment| recorded.note_pool(segment));
        }
        recorded.push(Action::Alloc, address, requested_bytes, origin, stack);
        let row = BlockRow { address, bytes, requested_bytes, stream, stack, state: LIVE };
        recorded.note_block(block, row);
        recorded.holders.allocated(stack, requested_bytes);
    }

    /// Records a free of a block that is free for any request. Call before the allocator's `free`,
    /// which may reuse the block's number.
    pub(crate) fn freed(&self, allocator: &mut Allocator, freed: Freed) {
        self.note_free(allocator, freed, Action::Free);
    }

    /// Records a free of a block that still waits for something. Call before the allocator's
    /// `free`.
    pub(crate) fn free_requested(&self, allocator: &mut Allocator, freed: Freed) {
        self.note_free(allocator, freed, Action::FreeRequested);
    }

    /// Returns the stack that allocated a live block, or `NONE` if that is not recorded.
    pub(crate) fn stack_of(&self, block: BlockId) -> StackId {
        self.recorded().map_or(StackId::NONE, |recorded| recorded.origin(block).stack)
    }

    /// Records pending frees that have completed, if any.
    pub(crate) fn completed(&self, allocator: &mut Allocator) {
        if let Some(mut recorded) = self.recorded() {
            recorded.take_completed(allocator);
        }
    }

    /// Returns the bytes that each stack holds and held at the peak.
    pub(crate) fn holders(&self) -> Vec<StackTotals> {
        lock(&self.0).holders.all().collect()
    }

    /// Makes the current state the peak.
    pub(crate) fn reset_peak(&self) {
        lock(&self.0).holders.reset_peak();
    }

    fn note_free(&self, allocator: &mut Allocator, freed: Freed, action: Action) {
        let Some(mut recorded) = self.recorded() else { return };
        let recorded = &mut *recorded;
        recorded.take_completed(allocator);
        recorded.keep_for_copy(freed.block);
        let mut nobodys = BlockRow::default();
        let row = recorded.blocks.get_mut(freed.block.0 as usize).unwrap_or(&mut nobodys);
        let origin = origin_of(row);
        recorded.holders.freed(origin.stack, origin.requested_bytes);
        let stack = if freed.stack == StackId::NONE { origin.stack } else { freed.stack };
        recorded.entries.push(action, freed.address, origin.requested_bytes, origin, stack);
        row.state = if action == Action::FreeRequested { PENDING } else { FREE };
        compiler_fence(Ordering::SeqCst);
    }

    /// Returns the locked record, or `None` if nothing is recorded.
    fn recorded(&self) -> Option<std::sync::MutexGuard<'_, Recorded>> {
        crate::record::is_on().then(|| lock(&self.0)).filter(|recorded| recorded.on)
    }
}

impl Recorded {
    fn push(&mut self, action: Action, address: u64, bytes: u64, origin: Origin, stack: StackId) {
        self.entries.push(action, address, bytes, origin, stack);
    }

    /// Notes the private pool of a segment. Call before recording events in the segment.
    fn note_pool(&mut self, segment: &SegmentView) {
        let Some(pool) = segment.private else { return };
        let known = self.pools.get(&segment.base.0).is_some_and(|(known, _)| *known == pool);
        if !known {
            self.pools.insert(segment.base.0, (pool, now_ns()));
        }
    }

    fn push_of_block(&mut self, action: Action, block: &BlockView, caller: StackId) {
        let origin = self.origin(block.block);
        let stack = if caller.is_none() { origin.stack } else { caller };
        self.push(action, block.address.0, origin.requested_bytes, origin, stack);
    }

    fn take_completed(&mut self, allocator: &mut Allocator) {
        for over in allocator.take_completed() {
            let origin = self.origin(over.block);
            let bytes = origin.requested_bytes;
            self.push(Action::FreeCompleted, over.address.0, bytes, origin, origin.stack);
            self.set_state(over.block, FREE);
        }
    }

    fn segment_ended(&mut self, action: Action, base: u64, bytes: u64, caller: StackId) {
        let row = self.segments.get(base).copied().unwrap_or_default();
        let origin = Origin { stack: row.stack, stream: row.stream, requested_bytes: 0 };
        let stack = if caller.is_none() { origin.stack } else { caller };
        self.push(action, base, bytes, origin, stack);
        self.segments.take_out(base, bytes);
        self.pools.remove(&base);
    }

    fn note_block(&mut self, block: BlockId, row: BlockRow) {
        let index = block.0 as usize;
        if index >= self.blocks.len() && !self.blocks.grow_to(index + 1) {
            return crate::record::stop_short();
        }
        self.keep_for_copy(block);
        if let Some(there) = self.blocks.get_mut(index) {
            *there = BlockRow { state: FREE, ..row };
            // See Note [Killed at any instruction].
            compiler_fence(Ordering::SeqCst);
            there.state = row.state;
        }
    }

    /// Changes the state of a recorded block.
    fn set_state(&mut self, block: BlockId, state: u32) {
        self.keep_for_copy(block);
        if let Some(row) = self.blocks.get_mut(block.0 as usize) {
            row.state = state;
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Keeps the row of a block for a snapshot that is copying the rows. Call before it changes.
    #[inline]
    fn keep_for_copy(&mut self, block: BlockId) {
        if self.copy.is_some() {
            self.keep_for(block);
        }
    }

    #[cold]
    fn keep_for(&mut self, block: BlockId) {
        let Recorded { blocks, copy, .. } = self;
        if !copy.as_mut().is_some_and(|copy| copy.keep(blocks, block.0 as usize)) {
            *copy = None;
        }
    }

    fn origin(&self, block: BlockId) -> Origin {
        self.blocks.get(block.0 as usize).map(origin_of).unwrap_or_default()
    }
}

impl Entries {
    fn push(&mut self, action: Action, address: u64, bytes: u64, origin: Origin, stack: StackId) {
        let source = self.source;
        let ring = self.ring.get_or_insert_with(|| persistent::ring(source, entries_max()));
        // The range of past events is unknown.
        let (range, entered) =
            if self.at_ns.is_some() { (NO_RANGE, 0) } else { ranges::for_entry() };
        ring.push(Entry {
            time_ns: self.at_ns.unwrap_or_else(now_ns),
            address,
            bytes,
            stream: origin.stream,
            stack: shown_stack(stack),
            action,
            entered,
            range,
        });
    }
}

fn origin_of(row: &BlockRow) -> Origin {
    let BlockRow { stack, stream, requested_bytes, .. } = *row;
    Origin { stack, stream, requested_bytes }
}

fn row_of(segment: &SegmentView, stack: StackId) -> SegmentRow {
    let is_small = segment.pool == Pool::Small;
    let flags = [(is_small, IS_SMALL), (segment.expandable, IS_EXPANDABLE)];
    SegmentRow {
        address: segment.base.0,
        bytes: segment.bytes,
        // Memory that grew for different streams was merged.
        stream: if segment.expandable { 0 } else { stream_of(segment.requester) },
        pool_id: segment.private.map_or(0, |private| private.0),
        stack,
        flags: flags.iter().filter(|(is, _)| *is).fold(IS_THERE, |flags, (_, flag)| flags | flag),
    }
}

/// The mappings, with adjacent ones merged.
fn ranges(mappings: &[Mapping]) -> impl Iterator<Item = (u64, u64)> {
    let touching = mappings.chunk_by(|left, right| left.end() == right.base);
    touching.map(|range| (range[0].base.0, range.iter().map(|mapping| mapping.bytes).sum()))
}

/// Number of entries of a ring: one if only live blocks are wanted, as in PyTorch.
pub(crate) fn entries_max() -> usize {
    let settings = settings::get();
    if settings.record == Record::State { 1 } else { settings.max_entries as usize }
}

/// Returns whether entries that a ring has dropped are missing: they are wanted.
pub(crate) fn misses_entries() -> bool {
    settings::get().record != Record::State
}

/// Returns the stack that an entry shows.
pub(crate) fn shown_stack(stack: StackId) -> StackId {
    let shown = settings::get().context >= StackContext::Alloc;
    if shown { stack } else { StackId::NONE }
}

/// Returns the stream's number. 0 is the default stream, as in PyTorch; a plain allocation has no
/// stream.
fn stream_of(requester: Requester) -> u64 {
    match requester {
        Requester::Context => 0,
        Requester::Stream(stream) => stream.0,
    }
}

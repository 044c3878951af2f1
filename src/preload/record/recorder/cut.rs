//! The part of a snapshot that comes from the recorder of one context. See Note [Cut] in
//! snapshots/cut.rs.

use cachealloc_core::{Allocator, BlockState, BlockView, Pool, SegmentView};
use cachealloc_history as history;
use cachealloc_history::persistent::layout::{BlockRow, FREE, LIVE, PENDING};
use cachealloc_history::{RingCopy, RingEntries, RowsCopy, StackId};

use crate::lock::lock;
use crate::record::recorder::{Origin, Recorded, Recorder, misses_entries, stream_of};

/// Where the blocks of a snapshot come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockSource {
    /// The recorder's rows, if it is on. They are copied after the cut.
    Rows,
    /// The allocator, at the cut.
    Allocator,
}

/// The state of one context at one moment, some of which is still to be copied.
pub(crate) struct Cut {
    /// Segments by address, without their blocks.
    pub segments: Vec<history::Segment>,
    pub active_bytes: u64,
    blocks: Vec<history::Block>,
    /// Memory for some rows, and whether not all were copied yet.
    rows: Option<Vec<BlockRow>>,
    /// Number and bytes of the blocks that the program holds, by the allocator.
    held: (u64, u64),
    /// Whether the blocks come from the allocator itself.
    is_listed: bool,
    ring: Option<RingCopy>,
}

impl Recorder {
    /// An upper bound of the bytes that a cut takes.
    pub(crate) fn cut_bytes(&self, allocator: &Allocator, source: BlockSource) -> usize {
        let recorded = lock(&self.0);
        let blocks_bytes = match recorded.has_rows(source) {
            true => RowsCopy::bytes(&recorded.blocks),
            false => allocator.blocks_count() * size_of::<history::Block>(),
        };
        let ring_bytes = recorded.entries.ring.as_ref().map_or(0, RingCopy::bytes);
        let segments_bytes = allocator.segments_count() * size_of::<history::Segment>();
        blocks_bytes + ring_bytes + segments_bytes + HEADS_BYTES
    }

    /// Makes the cut, with the thread caches empty. `requested` returns the bytes that the program
    /// requested, if nothing is recorded.
    pub(crate) fn cut(
        &self,
        allocator: &Allocator,
        device: i32,
        source: BlockSource,
        requested: impl Fn(&BlockView) -> u64,
    ) -> Cut {
        let mut recorded = lock(&self.0);
        let has_rows = recorded.has_rows(source);
        recorded.copy = has_rows.then(|| RowsCopy::begin(&recorded.blocks));
        let mut segments = Vec::with_capacity(allocator.segments_count());
        segments.extend(allocator.segments().map(|view| recorded.segment(&view, device)));
        let mut blocks = Vec::new();
        if !has_rows {
            blocks.reserve_exact(allocator.blocks_count());
            let block = |view: BlockView| recorded.block(&view, || requested(&view));
            blocks.extend(allocator.every_block().map(block));
        }
        let stats = allocator.stats();
        Cut {
            segments,
            active_bytes: stats.active_bytes.all.current,
            blocks,
            rows: has_rows.then(Vec::new),
            held: (stats.allocation.all.current, stats.allocated_bytes.all.current),
            is_listed: !has_rows,
            ring: recorded.entries.ring.as_ref().map(RingCopy::begin),
        }
    }

    /// Copies some entries.
    pub(crate) fn copy_entries(&self, cut: &mut Cut) {
        let recorded = lock(&self.0);
        if let Some(copy) = &mut cut.ring {
            copy.copy(recorded.entries.ring.as_ref());
        }
    }

    /// Copies the rows of some blocks. Returns `None` if they are gone.
    pub(crate) fn copy_blocks(&self, cut: &mut Cut) -> Option<()> {
        let some = cut.rows.as_mut()?;
        let mut recorded = lock(&self.0);
        let Recorded { blocks, copy, .. } = &mut *recorded;
        if !copy.as_mut()?.copy(blocks, some) {
            let copy = copy.take();
            drop(recorded);
            drop(copy);
            cut.rows = None;
        }
        Some(())
    }
}

/// The heads of a few allocations.
const HEADS_BYTES: usize = 1024;

impl Cut {
    /// Packs the copied entries. Returns whether more are to be copied.
    pub(crate) fn pack_entries(&mut self) -> bool {
        self.ring.as_mut().is_some_and(RingCopy::pack)
    }

    /// Gives up all entries.
    pub(crate) fn lose_entries(&mut self) {
        self.ring.iter_mut().for_each(|copy| copy.copy(None));
    }

    /// Returns the copied entries.
    pub(crate) fn take_entries(&mut self) -> RingEntries {
        let mut entries = self.ring.take().map(RingCopy::finish).unwrap_or_default();
        if !misses_entries() {
            entries.dropped_count = 0;
        }
        entries
    }

    /// Notes the blocks of the copied rows, and makes room for more. Returns whether more are to be
    /// copied.
    pub(crate) fn lacks_blocks(&mut self) -> bool {
        let Some(some) = &mut self.rows else { return false };
        if some.capacity() == 0 {
            *some = RowsCopy::room();
            self.blocks.reserve_exact(self.held.0 as usize);
        }
        let active = some.iter().filter(|row| row.state != FREE);
        self.blocks.extend(active.map(active_block));
        some.clear();
        true
    }

    /// Returns the blocks. Returns `None` if the rows do not agree with the allocator.
    pub(crate) fn take_blocks(&mut self) -> Option<Vec<history::Block>> {
        let held = self.blocks.iter().filter(|it| it.state == history::BlockState::Allocated);
        let (count, bytes) = held.fold((0, 0), |(count, bytes), it| (count + 1, bytes + it.bytes));
        let agrees = self.is_listed || (count, bytes) == self.held;
        agrees.then(|| std::mem::take(&mut self.blocks))
    }
}

fn active_block(row: &BlockRow) -> history::Block {
    let BlockRow { address, bytes, requested_bytes, stack, state, .. } = *row;
    let pending = state == PENDING;
    debug_assert!(pending || state == LIVE);
    let state = if pending { history::BlockState::Pending } else { history::BlockState::Allocated };
    history::Block { address, bytes, requested_bytes, state, stack }
}

impl Recorded {
    fn has_rows(&self, source: BlockSource) -> bool {
        self.on && source == BlockSource::Rows
    }

    fn segment(&self, view: &SegmentView, device: i32) -> history::Segment {
        let row = self.segments.get(view.base.0);
        let pool = self.pools.get(&view.base.0);
        let pool = pool.filter(|(pool, _)| view.private == Some(*pool));
        history::Segment {
            device: device as u32,
            address: view.base.0,
            bytes: view.bytes,
            // Memory that grew for different streams was merged.
            stream: if view.expandable { 0 } else { stream_of(view.requester) },
            kind: match view.pool {
                Pool::Small => history::PoolKind::Small,
                Pool::Large => history::PoolKind::Large,
            },
            pool_id: (view.private.map_or(0, |private| private.0), 0),
            pool_since_ns: pool.map(|(_, since_ns)| *since_ns),
            expandable: view.expandable,
            stack: row.map_or(StackId::NONE, |row| row.stack),
            blocks: Vec::new(),
        }
    }

    fn block(&self, view: &BlockView, requested_bytes: impl Fn() -> u64) -> history::Block {
        let state = match view.state {
            BlockState::Allocated => history::BlockState::Allocated,
            BlockState::Free(ready) if ready.is_pending() => history::BlockState::Pending,
            BlockState::Free(_) => history::BlockState::Free,
        };
        let active = state != history::BlockState::Free;
        let origin = if active { self.origin(view.block) } else { Origin::default() };
        let recorded = self.on.then_some(origin.requested_bytes);
        history::Block {
            address: view.address.0,
            bytes: view.bytes,
            requested_bytes: if active { recorded.unwrap_or_else(requested_bytes) } else { 0 },
            state,
            stack: origin.stack,
        }
    }
}

//! The part of a snapshot that comes from the recorder of one context.

use cachealloc_core::{Allocator, BlockState, BlockView, Pool};
use cachealloc_history as history;
use cachealloc_history::{Entry, Ring, StackId};

use crate::lock::lock;
use crate::record::recorder::{Origin, Recorded, Recorder, missing_count, stream_of};

/// The segments with their blocks, and the entries, of one context at one moment.
#[derive(Default)]
pub(crate) struct Cut {
    pub segments: Vec<history::Segment>,
    pub entries: Vec<Entry>,
    pub dropped_count: u64,
}

impl Recorder {
    /// An upper bound of the bytes that a cut takes.
    pub(crate) fn cut_bytes(&self, allocator: &Allocator) -> usize {
        let recorded = lock(&self.0);
        let segments = allocator.segments();
        let (segments_count, blocks_count) =
            segments.fold((0, 0), |(segments, blocks), segment| {
                (segments + 1, blocks + allocator.blocks(segment.id).count())
            });
        let ring = recorded.entries.ring.as_ref();
        // A list that grows abandons its old memory, and is up to twice as long as its contents.
        segments_count * (6 * size_of::<history::Segment>() + 256)
            + blocks_count * 4 * size_of::<history::Block>()
            + ring.map_or(0, Ring::len) * 4 * size_of::<Entry>()
    }

    /// Returns the segments, blocks and entries at this moment, with the thread caches empty.
    /// `requested` returns the bytes that the program requested, if nothing is recorded.
    pub(crate) fn cut(
        &self,
        allocator: &mut Allocator,
        device: i32,
        requested: impl Fn(&BlockView) -> u64,
    ) -> Cut {
        let mut recorded = lock(&self.0);
        recorded.take_completed(allocator);
        let segment = |view: cachealloc_core::SegmentView| {
            let blocks = allocator.blocks(view.id);
            let row = recorded.segments.get(view.base.0);
            let pool = recorded.pools.get(&view.base.0);
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
                blocks: blocks.map(|block| recorded.block(&block, || requested(&block))).collect(),
            }
        };
        let segments = allocator.segments().map(segment).collect();
        let ring = recorded.entries.ring.as_ref();
        Cut {
            segments,
            entries: ring.map(Ring::to_vec).unwrap_or_default(),
            dropped_count: ring.map_or(0, missing_count),
        }
    }
}

impl Recorded {
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

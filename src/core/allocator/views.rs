//! Read-only views of the allocator: a query about an address, and all segments and blocks for a
//! snapshot.

use core::iter;

use crate::allocator::Allocator;
use crate::block::State;
use crate::types::{Address, BlockId, Pool, PrivatePool, Requester, ReuseCondition, SegmentId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentView {
    pub id: SegmentId,
    pub base: Address,
    pub bytes: u64,
    /// Whether the segment lies in an arena, where it may grow, shrink, merge with another and fall
    /// apart.
    pub expandable: bool,
    pub pool: Pool,
    /// Creation number: segments are numbered in the order of their arrival.
    pub registration: u64,
    /// The stream it was reserved for. The segment serves others as well.
    pub requester: Requester,
    /// The capture that it belongs to.
    pub private: Option<PrivatePool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockView {
    pub block: BlockId,
    pub address: Address,
    pub bytes: u64,
    /// 0 unless the block is active.
    pub requested_bytes: u64,
    pub state: BlockState,
    /// Whether the block is never reused once freed, because other processes may have mapped it.
    pub exported: bool,
    /// The private pool that owns it.
    pub private: Option<PrivatePool>,
    pub segment: SegmentView,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    Allocated,
    /// Freed. Pending free if `ReuseCondition::is_pending`.
    Free(ReuseCondition),
}

impl Allocator {
    /// Returns the block that contains the address, if a segment of the allocator does. Walks
    /// through that segment.
    pub fn find(&self, address: Address) -> Option<BlockView> {
        self.block_around(address).map(|id| self.view(id))
    }

    /// Returns the size of an allocated block.
    pub fn bytes(&self, id: BlockId) -> u64 {
        self.blocks.at(id.0).bytes
    }

    /// Returns the pool of an allocated block, and the bytes requested when it left the allocator.
    #[inline]
    pub fn requested(&self, id: BlockId) -> (Pool, u64) {
        let block = self.blocks.at(id.0);
        (block.pool, block.requested_bytes)
    }

    pub fn segment_around(&self, address: Address) -> Option<SegmentView> {
        let (_, &id) = self.segment_at.range(..=address).next_back()?;
        let view = self.segment_view(id);
        (address.0 - view.base.0 < view.bytes).then_some(view)
    }

    /// Every segment, by address.
    pub fn segments(&self) -> impl Iterator<Item = SegmentView> {
        self.segment_at.values().map(|&id| self.segment_view(id))
    }

    /// The blocks of a segment, by address.
    pub fn blocks(&self, segment: SegmentId) -> impl Iterator<Item = BlockView> {
        let first = self.segments.get(segment.0).map(|segment| segment.first);
        first.into_iter().flat_map(|first| self.blocks_from(first)).map(|id| self.view(id))
    }

    /// All blocks, in no order: in that of memory, which is faster than by address.
    pub fn every_block(&self) -> impl Iterator<Item = BlockView> {
        self.blocks.iter().map(|(number, _)| self.view(BlockId(number)))
    }

    pub fn segments_count(&self) -> usize {
        self.segment_at.len()
    }

    pub fn blocks_count(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn blocks_from(&self, first: BlockId) -> impl Iterator<Item = BlockId> {
        iter::successors(Some(first), |id| self.blocks.at(id.0).next)
    }

    fn block_around(&self, address: Address) -> Option<BlockId> {
        let (_, &segment) = self.segment_at.range(..=address).next_back()?;
        let first = self.segments.at(segment.0).first;
        self.blocks_from(first).find(|id| address < self.blocks.at(id.0).end())
    }

    fn view(&self, id: BlockId) -> BlockView {
        let block = self.blocks.at(id.0);
        BlockView {
            block: id,
            address: block.address,
            bytes: block.bytes,
            requested_bytes: block.requested_bytes,
            state: match block.state {
                State::Allocated => BlockState::Allocated,
                State::Free => BlockState::Free(ReuseCondition::Everywhere),
                State::Tagged(tag) => BlockState::Free(tag.ready),
            },
            exported: block.exported,
            private: block.private,
            segment: self.segment_view(block.segment),
        }
    }

    fn segment_view(&self, id: SegmentId) -> SegmentView {
        let segment = self.segments.at(id.0);
        SegmentView {
            id,
            base: segment.base,
            bytes: segment.bytes,
            expandable: segment.expandable,
            pool: segment.pool,
            registration: segment.registration,
            requester: segment.requester,
            private: segment.private,
        }
    }
}

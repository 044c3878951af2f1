//! Memory that a capture uses, and memory that it does not.
//!
//! Note [Joined blocks]. A thread that submits work into a capture may have allocated ordinary
//! memory before that. From then on such a block belongs to the capture's pool wherever it lies:
//! once freed it waits for the pool, and adjacent blocks are not affected.
//!
//! Conversely, a graph does not use all memory that its capture was given. The driver really
//! allocates and frees in a relaxed capture: memory that is freed there and that no node references
//! is ordinary memory again. Its free has waited, so no later use has to. The caller knows the
//! references of nodes, as ranges of addresses; a block that was freed after work outside of the
//! capture waits for the pool all the same (`used_outside`), if it has not left the pool before
//! (`detach_from_pool`).
//!
//! * While the capture runs, a segment without anything in use is released as a whole: the capture
//!   may want the memory again, and takes it back as if it had been idle since before it began.
//! * When the capture has ended, so is every block that is not held and that no node references.

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::{Block, OutsideUse, State};
use crate::rules::{Rule, rule_holds};
use crate::types::{Address, BlockId, PrivatePool, ReuseCondition, SegmentId};

impl Allocator {
    /// Attaches this block, which the program holds and the capture uses. A block that belongs to a
    /// pool already stays there.
    pub fn attach_to_pool(&mut self, id: BlockId, pool: PrivatePool) {
        let block = self.blocks.at(id.0);
        assert!(block.state == State::Allocated, "{id:?} joins {pool:?} and is not allocated");
        if block.private.is_none() && self.serves_pool(pool) {
            self.set_private(id, Some(pool));
        }
    }

    /// Frees this block of a pool for every request: the program has freed it after all work with
    /// it, and no node references it.
    pub fn free_unused(&mut self, id: BlockId) {
        let segment = self.blocks.at(id.0).segment;
        if self.segments.at(segment.0).private.is_none() {
            self.set_private(id, None);
        }
        self.free_as(id, ReuseCondition::Everywhere, OutsideUse::None);
    }

    /// Detaches this block, which the program still holds and no node references: it will be freed
    /// as any block. Free memory beside it in a segment of the pool becomes free for every request
    /// too, except where `uses` returns `true`.
    pub fn detach_from_pool(&mut self, id: BlockId, uses: impl Fn(Address, Address) -> bool) {
        self.set_private(id, None);
        let segment = self.blocks.at(id.0).segment;
        let row = self.segments.at(segment.0);
        let first = row.first;
        if row.private.is_none() {
            return;
        }
        self.set_segment_private(segment, None);
        let opens = |id: &BlockId| {
            let block = self.blocks.at(id.0);
            let free = block.private.is_some() && block.state != State::Allocated;
            free && !block.used_outside.is_any() && !uses(block.address, block.end())
        };
        let free: Vec<BlockId> = self.blocks_from(first).filter(opens).collect();
        free.into_iter().for_each(|block| self.open_block(block));
        self.note_leaving(segment);
    }

    /// Makes the segment around this address ordinary memory, if it belongs to a pool, nothing in
    /// it is held and the pool's capture, which still runs, uses none of it. Returns whether it
    /// did.
    pub fn open_unused(
        &mut self,
        address: Address,
        uses: impl Fn(Address, Address) -> bool,
    ) -> bool {
        let Some((_, &id)) = self.segment_at.range(..=address).next_back() else { return false };
        let row = self.segments.at(id.0);
        let Some(pool) = row.private else { return false };
        let blocks: Vec<BlockId> = self.blocks_from(row.first).collect();
        let unused = blocks.iter().all(|block| !self.blocks.at(block.0).used_outside.is_any());
        if row.allocated_count > 0 || !unused || uses(row.base, row.end()) {
            return false;
        }
        let begun = self.private.get(&pool).expect("a pool with blocks is open").begun;
        self.set_segment_private(id, None);
        blocks.into_iter().for_each(|block| self.open_block(block));
        // Until it is used again, it was idle for this capture.
        let first = self.segments.at(id.0).first;
        self.blocks.at_mut(first.0).becomes_free(begun.0.saturating_sub(1));
        self.note_leaving(id);
        true
    }

    /// Makes the memory of an ended capture ordinary as soon as it is not held, except the memory
    /// that the graph uses according to `uses`.
    pub fn open_rest(&mut self, pool: PrivatePool, uses: impl Fn(Address, Address) -> bool) {
        self.open_where(pool, |block| {
            let free = block.state != State::Allocated;
            let used = uses(block.address, block.end()) || free && block.used_outside.is_any();
            !used || !rule_holds(Rule::ReferencedStaysWithGraph)
        });
    }

    /// Returns the ranges of a pool that the program holds.
    pub fn held_of(&self, pool: PrivatePool) -> impl Iterator<Item = (Address, Address)> {
        let blocks = self.blocks_of(pool).map(|id| self.blocks.at(id.0));
        let allocated = blocks.filter(|block| block.state == State::Allocated);
        allocated.map(|block| (block.address, block.end()))
    }

    /// Returns whether any memory between these addresses belongs to a pool.
    pub fn is_anywhere_private(&self, begin: Address, end: Address) -> bool {
        let mut segments = self.segment_at.range(begin..end).map(|(_, id)| self.segments.at(id.0));
        segments.any(|segment| segment.private_count > 0)
    }

    /// Makes these blocks of a pool free for every request.
    pub(crate) fn open_where(&mut self, pool: PrivatePool, opens: impl Fn(&Block) -> bool) {
        let Some(memory) = self.private.get(&pool) else { return };
        let whole: Vec<SegmentId> = memory.segments.iter().copied().collect();
        let blocks = memory.blocks.iter().copied();
        let blocks: Vec<BlockId> = blocks.filter(|id| opens(self.blocks.at(id.0))).collect();
        whole.iter().for_each(|segment| self.set_segment_private(*segment, None));
        for block in blocks {
            self.open_block(block);
        }
        whole.into_iter().for_each(|segment| self.note_leaving(segment));
    }

    fn open_block(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        let segment = block.segment;
        // A block that waits for nothing of the pool stays in no index.
        let pending = block.is_pending() && block.work_tag().is_some();
        let stays = block.state == State::Allocated || pending;
        if !stays {
            self.remove_free(id);
        }
        self.set_private(id, None);
        let clock = self.clock;
        let block = self.blocks.at_mut(id.0);
        block.used_outside = OutsideUse::None;
        if stays {
            return;
        }
        if block.work_tag().is_none() {
            block.state = State::Free;
            block.becomes_free(clock);
        }
        self.coalesce_and_insert(id);
        self.note_leaving(segment);
    }
}

//! Most requests and most frees: of *plain* blocks, free for every request, of no capture, in no arena, never exported.
//!
//! What `take` and `coalesce_and_insert` do with any block is done here in one pass over the rows that it concerns: such
//! blocks wait for nothing, so nothing but an index lists them, and two that touch are one.

use crate::allocator::Allocator;
use crate::bins::Rank;
use crate::block::{Block, State};
use crate::types::{Address, Allocation, BlockId, Pool};

impl Allocator {
    /// As `remove_free` and `take`, of a block of `found_bytes`. None: it is not plain, and nothing has changed.
    #[inline(always)]
    pub(crate) fn take_plain(
        &mut self,
        id: BlockId,
        found_bytes: u64,
        block_bytes: u64,
        requested_bytes: u64,
    ) -> Option<Allocation> {
        let block = self.blocks.at_mut(id.0);
        if !block.is_plain() {
            return None;
        }
        let Block { segment, pool, address, registration, next, freed_at, .. } = *block;
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.remove_everywhere(Rank::of(block), id);
        let was_split = block.is_split();
        let used_outside = core::mem::replace(&mut block.used_outside, false);
        block.state = State::Allocated;
        block.requested_bytes = requested_bytes;
        let gone_bytes = if was_split { found_bytes as i64 } else { 0 };
        let mut bytes = found_bytes;
        if self.policy.splits(pool, found_bytes, block_bytes) {
            bytes = block_bytes;
            let rest_bytes = found_bytes - block_bytes;
            block.bytes = block_bytes;
            let (block, number, place) = self.blocks.beside(id.0);
            let rest = BlockId(number);
            block.next = Some(rest);
            let placed = place.insert(Block {
                segment,
                pool,
                address: Address(address.0 + block_bytes),
                bytes: rest_bytes,
                requested_bytes: 0,
                registration,
                previous: Some(id),
                next,
                state: State::Free,
                exported: false,
                expandable: false,
                private: None,
                used_outside,
                behind: None,
                freed_at,
                calm: None,
            });
            index.insert_everywhere(Rank::of(placed), rest);
            self.link_after(rest, next, segment);
            self.counts.split_changed(
                pool,
                1 - i64::from(was_split),
                rest_bytes as i64 - gone_bytes,
            );
        } else {
            self.counts.split_changed(pool, -i64::from(was_split), -gone_bytes);
        }
        self.segments.at_mut(segment.0).allocated_count += 1;
        self.counts.allocated(pool, bytes, requested_bytes);
        if self.policy.is_oversize(bytes) {
            self.counts.kept.oversize_allocations.increase(1);
        }
        Some(Allocation { block: id, segment, address, bytes, requested_bytes, behind: None })
    }

    /// As `coalesce_and_insert`, of a plain block.
    #[inline(always)]
    pub(crate) fn insert_plain(&mut self, id: BlockId) {
        let Block { pool, previous, next, .. } = *self.blocks.at(id.0);
        let (mut blocks, mut bytes) = (0, 0);
        if let Some(next) = next
            && self.blocks.at(next.0).is_plain()
        {
            bytes -= self.unlist_plain(next) as i64;
            blocks -= 1;
            self.absorb_plain(id, next);
        }
        let mut id = id;
        if let Some(previous) = previous
            && self.blocks.at(previous.0).is_plain()
        {
            bytes -= self.unlist_plain(previous) as i64;
            blocks -= 1;
            self.absorb_plain(previous, id);
            id = previous;
        }
        let block = self.blocks.at(id.0);
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.insert_everywhere(Rank::of(block), id);
        if block.is_split() {
            blocks += 1;
            bytes += block.bytes as i64;
        }
        self.counts.split_changed(pool, blocks, bytes);
    }

    /// Takes it out of its index, and returns its bytes.
    #[inline(always)]
    fn unlist_plain(&mut self, id: BlockId) -> u64 {
        let block = self.blocks.at(id.0);
        let index = if block.pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.remove_everywhere(Rank::of(block), id);
        block.bytes
    }

    /// As `absorb_next`.
    #[inline(always)]
    fn absorb_plain(&mut self, id: BlockId, next: BlockId) {
        let (block, place) = self.blocks.merge(id.0, next.0);
        let absorbed = place.as_ref().expect("the block is there");
        assert!(block.end() == absorbed.address, "{id:?} and {next:?} do not touch");
        block.bytes += absorbed.bytes;
        block.freed_at = block.freed_at.max(absorbed.freed_at);
        block.used_outside |= absorbed.used_outside;
        block.next = absorbed.next;
        *place = None;
        let (after, segment) = (block.next, block.segment);
        self.link_after(id, after, segment);
    }
}

//! The path of most requests and most frees: *plain* blocks, free for every request, of no capture,
//! in no arena, never exported.
//!
//! `take` and `coalesce_and_insert` handle any block. This module does the same in one pass over
//! the rows concerned: plain blocks wait for nothing, so only one index lists them, and two
//! adjacent ones are merged.

use crate::allocator::Allocator;
use crate::block::{Block, OutsideUse, State};
use crate::free_index::bins::Rank;
use crate::rules::{Rule, rule_holds};
use crate::types::{Address, Allocation, BlockId, Pool};

/// A plain block that was handed out.
#[derive(Clone, Copy)]
pub struct PlainHit {
    pub block: BlockId,
    pub address: Address,
    pub bytes: u64,
}

impl Allocator {
    /// Does the work of `remove_free` and `take`, for a block of this pool and of `found_bytes`;
    /// the caller counts it if it is oversize. Returns `None`, and changes nothing, if it is not
    /// plain.
    #[inline(always)]
    pub(crate) fn take_plain(
        &mut self,
        id: BlockId,
        pool: Pool,
        found_bytes: u64,
        block_bytes: u64,
        requested_bytes: u64,
    ) -> Option<PlainHit> {
        let splits = self.policy.splits(pool, found_bytes, block_bytes);
        let address = match splits {
            true => self.take_part_plain(id, pool, found_bytes, block_bytes, requested_bytes)?,
            false => self.take_whole_plain(id, pool, requested_bytes)?,
        };
        let bytes = if splits { block_bytes } else { found_bytes };
        Some(PlainHit { block: id, address, bytes })
    }

    #[inline(always)]
    fn take_part_plain(
        &mut self,
        id: BlockId,
        pool: Pool,
        found_bytes: u64,
        block_bytes: u64,
        requested_bytes: u64,
    ) -> Option<Address> {
        let (block, number, place) = self.blocks.beside(id.0);
        if !block.is_plain() {
            self.blocks.note_vacant(number);
            return None;
        }
        let rest = BlockId(number);
        let old = Rank::of(block);
        let Block { segment, address, registration, next, freed_at, .. } = *block;
        let was_split = block.is_split();
        block.state = State::Allocated;
        block.requested_bytes = requested_bytes;
        block.bytes = block_bytes;
        block.next = Some(rest);
        let rest_bytes = found_bytes - block_bytes;
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
            used_outside: OutsideUse::None,
            behind: None,
            freed_at,
            idle_span: None,
        });
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.replace_everywhere((old, id), (Rank::of(placed), rest));
        let row = self.segments.at_mut(segment.0);
        row.allocated_count += 1;
        match next {
            Some(next) => self.blocks.at_mut(next.0).previous = Some(rest),
            None => row.last = rest,
        }
        match was_split {
            true => self.counts.split_shrank(pool, block_bytes),
            false => self.counts.split_rose(pool, rest_bytes),
        }
        self.counts.allocated(pool, block_bytes, requested_bytes);
        Some(address)
    }

    #[inline(never)]
    fn take_whole_plain(
        &mut self,
        id: BlockId,
        pool: Pool,
        requested_bytes: u64,
    ) -> Option<Address> {
        let block = self.blocks.at_mut(id.0);
        if !block.is_plain() {
            return None;
        }
        let Block { segment, address, bytes, .. } = *block;
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.remove_everywhere(Rank::of(block), id);
        block.state = State::Allocated;
        block.requested_bytes = requested_bytes;
        let was_split = block.is_split();
        self.segments.at_mut(segment.0).allocated_count += 1;
        if was_split {
            self.counts.split_changed(pool, -1, -(bytes as i64));
        }
        self.counts.allocated(pool, bytes, requested_bytes);
        Some(address)
    }

    /// Returns the full description of the allocation.
    #[inline]
    pub(crate) fn allocation(&self, plain: PlainHit, requested_bytes: u64) -> Allocation {
        let PlainHit { block, address, bytes } = plain;
        let segment = self.blocks.at(block.0).segment;
        Allocation { block, segment, address, bytes, requested_bytes, behind: None }
    }

    /// Frees a block that every request may take from now on, as most frees do. Returns the pool
    /// and the requested bytes. Returns `None`, and changes nothing, if the block would not be
    /// plain.
    #[inline(always)]
    pub fn free_plain(&mut self, id: BlockId) -> Option<(Pool, u64)> {
        let block = self.blocks.at_mut(id.0);
        if block.state != State::Allocated {
            is_not_allocated(id);
        }
        let Block { segment, pool, bytes, previous, next, requested_bytes, .. } = *block;
        let becomes_plain = block.is_ordinary() && block.behind.is_none();
        if !becomes_plain || !rule_holds(Rule::MergeSameTagOnly) {
            return None;
        }
        block.state = State::Free;
        block.freed_at = self.clock;
        block.requested_bytes = 0;
        let row = self.segments.at_mut(segment.0);
        row.allocated_count -= 1;
        let may_leave = row.exported_count > 0;
        self.counts.freed(pool, bytes);
        self.counts.is_inactive(pool, requested_bytes);
        if self.policy.is_oversize(bytes) {
            self.counts.kept.oversize_allocations.decrease(1);
        }
        self.insert_plain(id, pool, bytes, previous, next);
        if may_leave {
            self.note_leaving(segment);
        }
        Some((pool, requested_bytes))
    }

    /// Does the same as `coalesce_and_insert`, for a plain block of this pool and size, between
    /// these blocks.
    #[inline(always)]
    fn insert_plain(
        &mut self,
        id: BlockId,
        pool: Pool,
        bytes: u64,
        previous: Option<BlockId>,
        next: Option<BlockId>,
    ) {
        let is_free = |neighbour: &BlockId| self.blocks.at(neighbour.0).is_plain();
        if let Some(next) = next.filter(is_free) {
            return match previous.filter(is_free) {
                Some(previous) => self.join_both_plain(previous, id, next, pool, bytes),
                None => self.join_plain(id, next, next, pool, bytes),
            };
        }
        match previous {
            Some(previous) => self.join_plain(previous, id, previous, pool, bytes),
            None => self.list_plain(id, pool),
        }
    }

    /// Indexes a block that is not merged.
    #[inline(never)]
    fn list_plain(&mut self, id: BlockId, pool: Pool) {
        let block = self.blocks.at(id.0);
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.insert_everywhere(Rank::of(block), id);
        if block.is_split() {
            self.counts.split_rose(pool, block.bytes);
        }
    }

    /// Merges a block of this size with its one indexed adjacent block, if that is plain.
    #[inline(always)]
    fn join_plain(
        &mut self,
        left: BlockId,
        right: BlockId,
        listed: BlockId,
        pool: Pool,
        bytes: u64,
    ) {
        let (block, place) = self.blocks.with_place(left.0, right.0);
        let Some(absorbed) = place else { do_not_touch(left, right) };
        let (old, single) = if listed == left { (&*block, right) } else { (&*absorbed, left) };
        if !old.is_plain() {
            return self.list_plain(single, pool);
        }
        let old = Rank::of(old);
        if !absorb_plain(block, absorbed) {
            do_not_touch(left, right);
        }
        let (joined, is_split) = (Rank::of(block), block.is_split());
        let (after, segment) = (block.next, block.segment);
        *place = None;
        self.blocks.note_vacant(right.0);
        self.link_after(left, after, segment);
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.replace_everywhere((old, listed), (joined, left));
        match is_split {
            true => self.counts.split_grew(pool, bytes),
            false => self.counts.split_changed(pool, -1, -(old.bytes as i64)),
        }
    }

    /// Merges a block of this size with the two plain ones around it.
    #[inline(never)]
    fn join_both_plain(
        &mut self,
        previous: BlockId,
        id: BlockId,
        next: BlockId,
        pool: Pool,
        bytes: u64,
    ) {
        let [old, gone] = [previous, next].map(|listed| Rank::of(self.blocks.at(listed.0)));
        for (left, right) in [(id, next), (previous, id)] {
            let (block, place) = self.blocks.with_place(left.0, right.0);
            let touches = place.as_ref().is_some_and(|absorbed| absorb_plain(block, absorbed));
            if !touches {
                do_not_touch(left, right);
            }
            let (after, segment) = (block.next, block.segment);
            *place = None;
            self.blocks.note_vacant(right.0);
            self.link_after(left, after, segment);
        }
        let block = self.blocks.at(previous.0);
        let (joined, is_split) = (Rank::of(block), block.is_split());
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.remove_everywhere(gone, next);
        index.replace_everywhere((old, previous), (joined, previous));
        match is_split {
            true => self.counts.split_changed(pool, -1, bytes as i64),
            false => self.counts.split_changed(pool, -2, -((old.bytes + gone.bytes) as i64)),
        }
    }
}

/// Merges the second block's fields into the first one. Returns `false` if the blocks are not
/// adjacent.
#[inline(always)]
fn absorb_plain(block: &mut Block, absorbed: &Block) -> bool {
    let they_touch = block.end() == absorbed.address;
    block.bytes += absorbed.bytes;
    block.freed_at = block.freed_at.max(absorbed.freed_at);
    block.next = absorbed.next;
    they_touch
}

#[cold]
#[inline(never)]
fn is_not_allocated(id: BlockId) -> ! {
    panic!("{id:?} is freed but not allocated")
}

#[cold]
#[inline(never)]
fn do_not_touch(left: BlockId, right: BlockId) -> ! {
    panic!("{left:?} and {right:?} do not touch")
}

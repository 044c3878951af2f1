//! Most requests and most frees: of *plain* blocks, free for every request, of no capture, in no arena, never exported.
//!
//! What `take` and `coalesce_and_insert` do with any block is done here in one pass over the rows that it concerns: such
//! blocks wait for nothing, so nothing but an index lists them, and two that touch are one.

use crate::allocator::Allocator;
use crate::bins::Rank;
use crate::block::{Block, State};
use crate::rules::{Rule, rule_holds};
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
        let row = self.segments.at_mut(segment.0);
        row.allocated_count += 1;
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
            match next {
                Some(next) => self.blocks.at_mut(next.0).previous = Some(rest),
                None => row.last = rest,
            }
            let blocks = 1 - i64::from(was_split);
            self.counts.split_changed(pool, blocks, rest_bytes as i64 - gone_bytes);
        } else {
            self.counts.split_changed(pool, -i64::from(was_split), -gone_bytes);
        }
        self.counts.allocated(pool, bytes, requested_bytes);
        if self.policy.is_oversize(bytes) {
            self.counts.kept.oversize_allocations.increase(1);
        }
        Some(Allocation { block: id, segment, address, bytes, requested_bytes, behind: None })
    }

    /// As `free` of a block that every request may take from now on: most frees. Returns what `requested` said. None:
    /// the block would not be plain, and nothing has changed.
    #[inline(never)]
    pub fn free_plain(&mut self, id: BlockId) -> Option<(Pool, u64)> {
        let block = self.blocks.at_mut(id.0);
        assert!(block.state == State::Allocated, "{id:?} is freed but not allocated");
        let Block { segment, pool, bytes, previous, next, requested_bytes, .. } = *block;
        let becomes_plain = block.is_ordinary() && block.behind.is_none();
        if !becomes_plain || !rule_holds(Rule::MergeSameTagOnly) {
            return None;
        }
        block.state = State::Free;
        block.freed_at = self.clock;
        block.used_outside = false;
        block.requested_bytes = 0;
        let row = self.segments.at_mut(segment.0);
        row.allocated_count -= 1;
        let may_leave = row.exported_count > 0;
        self.counts.freed(pool, bytes);
        self.counts.is_inactive(pool, requested_bytes);
        if self.policy.is_oversize(bytes) {
            self.counts.kept.oversize_allocations.decrease(1);
        }
        self.insert_plain(id, pool, previous, next);
        if may_leave {
            self.note_leaving(segment);
        }
        Some((pool, requested_bytes))
    }

    /// As `coalesce_and_insert`, of a plain block in this pool between these.
    #[inline(always)]
    fn insert_plain(
        &mut self,
        id: BlockId,
        pool: Pool,
        previous: Option<BlockId>,
        next: Option<BlockId>,
    ) {
        let (mut blocks, mut bytes) = (0, 0);
        if let Some(next) = next
            && let Some((_, gone)) = self.join_plain(id, next, next)
        {
            (blocks, bytes) = (-1, -gone);
        }
        let (id, rank, is_split) = match previous {
            Some(previous)
                if let Some((joined, gone)) = self.join_plain(previous, id, previous) =>
            {
                (blocks, bytes) = (blocks - 1, bytes - gone);
                (previous, joined.0, joined.1)
            }
            _ => {
                let block = self.blocks.at(id.0);
                (id, Rank::of(block), block.is_split())
            }
        };
        let index = if pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.insert_everywhere(rank, id);
        if is_split {
            (blocks, bytes) = (blocks + 1, bytes + rank.bytes as i64);
        }
        self.counts.split_changed(pool, blocks, bytes);
    }

    /// As `remove_free` of the one of two neighbours that is listed, and `absorb_next`. Returns where what they are now
    /// belongs, whether it is split, and the bytes of the listed one. None: that is not plain, and nothing has changed.
    #[inline(always)]
    fn join_plain(
        &mut self,
        left: BlockId,
        right: BlockId,
        listed: BlockId,
    ) -> Option<((Rank, bool), i64)> {
        let (block, place) = self.blocks.with_place(left.0, right.0);
        let absorbed = place.as_ref().expect("the block is there");
        let found = if listed == left { &*block } else { absorbed };
        if !found.is_plain() {
            return None;
        }
        let gone_bytes = found.bytes as i64;
        let index = if found.pool == Pool::Small { &mut self.small } else { &mut self.large };
        index.remove_everywhere(Rank::of(found), listed);
        assert!(block.end() == absorbed.address, "{left:?} and {right:?} do not touch");
        block.bytes += absorbed.bytes;
        block.freed_at = block.freed_at.max(absorbed.freed_at);
        block.used_outside |= absorbed.used_outside;
        block.next = absorbed.next;
        let (after, segment) = (block.next, block.segment);
        let joined = (Rank::of(block), block.is_split());
        *place = None;
        self.blocks.note_vacant(right.0);
        self.link_after(left, after, segment);
        Some((joined, gone_bytes))
    }
}

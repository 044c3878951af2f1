//! Memory that belongs to one capture.
//!
//! Note [Private pools]. A capture does not run: the recorded work runs later, as often as its
//! graph is launched, and each time at the same addresses. So a block that was handed out inside a
//! capture is used again long after the program has freed it, and any other user of it would find
//! its contents overwritten. Segments from which captures are served are therefore *private*: no
//! part of them serves others before the graph and all that was made from it are gone.
//!
//! Inside the capture a freed block waits (`ReuseCondition::WithPool`). Only the graph shows that a
//! later use comes after the last one in every launch (`reuse`).
//!
//! A graph may use memory that was not allocated for it, and may leave unused memory that was
//! (`attached`). So each block belongs to a pool individually. A segment stays where all its blocks
//! belong to the pool.
//!
//! A pool ends in two steps. From `end_pool` on, frees of its blocks are ordinary frees: the graph
//! is gone, and they wait for the same as any block. The caller then makes sure that all work so
//! far is complete, and `close_pool` makes the segments ordinary memory; a block that the program
//! still holds becomes a block like any other.
//!
//! A capture may adopt segments that were not used since before it began, but no others: an earlier
//! part of the same capture may still use memory that was freed during it in its launches. Where
//! the driver has no memory for a segment, the capture gets a part of one (`adopt_part`): memory
//! that was idle as long, or that no node of its graph references by now.
//!
//! Note [Polling for a capture]. The caller looks for memory of the pool (`hit`, `take_any`) while
//! the capture stands still: it has locked the capture, so nothing is captured, and what the graph
//! orders (`reuse`) stays true. It polls without that lock, because it waits and asks the driver
//! between two polls. Meanwhile the capture may end and its graph may be launched. So a request of
//! a capture that is polled gets only memory that the capture has never used: idle or new segments.
//! If the capture has ended, the caller makes this memory ordinary (`open_rest`).

pub(crate) mod attached;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::{OutsideUse, State};
use crate::free_index::FreeIndex;
use crate::idle::decay::IdleEpoch;
use crate::policy::BLOCK_BYTES_MIN;
use crate::request::Request;
use crate::rules::{Rule, rule_holds};
use crate::types::{
    Address, Allocation, BlockId, Pool, PrivatePool, ReuseCondition, SegmentId, StreamId,
};

/// The free blocks of a private pool.
#[derive(Clone)]
pub(crate) struct PrivateMemory {
    small: FreeIndex,
    large: FreeIndex,
    /// The epoch at which its capture began.
    pub(crate) begun: IdleEpoch,
    /// Whether its graph is gone.
    pub(crate) ends: bool,
    /// Its blocks, and its own segments. They bound the cost of a capture, which does not depend on
    /// the rest of the context.
    pub(crate) blocks: BTreeSet<BlockId>,
    pub(crate) segments: BTreeSet<SegmentId>,
}

impl PrivateMemory {
    pub(crate) fn index(&self, pool: Pool) -> &FreeIndex {
        match pool {
            Pool::Small => &self.small,
            Pool::Large => &self.large,
        }
    }
}

/// Returns the index that lists a block of a private pool.
#[inline(never)]
pub(crate) fn private_index(
    pools: &mut BTreeMap<PrivatePool, PrivateMemory>,
    id: PrivatePool,
    pool: Pool,
) -> &mut FreeIndex {
    let memory = pools.get_mut(&id).expect("a private pool with blocks is open");
    match pool {
        Pool::Small => &mut memory.small,
        Pool::Large => &mut memory.large,
    }
}

impl Allocator {
    /// Opens a private pool for a capture that began at this epoch.
    pub fn open_pool(&mut self, id: PrivatePool, begun: IdleEpoch) {
        let (small, large) = (FreeIndex::new(), FreeIndex::new());
        let (blocks, segments) = (BTreeSet::new(), BTreeSet::new());
        let memory = PrivateMemory { small, large, begun, ends: false, blocks, segments };
        let other = self.private.insert(id, memory);
        assert!(other.is_none(), "{id:?} is opened twice");
    }

    /// Returns whether requests for this pool are served.
    pub fn serves_pool(&self, id: PrivatePool) -> bool {
        self.private.get(&id).is_some_and(|memory| !memory.ends)
    }

    /// Returns the private pool whose capture, or graph, may still use this block.
    pub fn private_pool_of(&self, id: BlockId) -> Option<PrivatePool> {
        self.blocks.get(id.0)?.private.filter(|pool| self.serves_pool(*pool))
    }

    /// Returns whether the block is freed and waits for its pool.
    pub fn waits_with_pool(&self, id: BlockId) -> bool {
        let block = self.blocks.get(id.0);
        block.and_then(|block| block.tag()).is_some_and(|tag| tag.ready == ReuseCondition::WithPool)
    }

    /// Makes this waiting block reusable in its capture. The caller has shown that in every launch,
    /// everything captured from now on comes after the last use of the block: on this stream, or on
    /// any if it is `None`.
    pub fn reuse(&mut self, id: BlockId, stream: Option<StreamId>) {
        assert!(self.waits_with_pool(id), "{id:?} does not wait for its pool");
        self.remove_free(id);
        let tag = stream.and_then(|stream| self.tags.make(ReuseCondition::InPool { stream }));
        let block = self.blocks.at_mut(id.0);
        block.state = tag.map_or(State::Free, State::Tagged);
        block.becomes_free(self.clock);
        self.coalesce_and_insert(id);
    }

    /// Ends the pool: the graph is gone, and no request is served from the pool any more.
    pub fn end_pool(&mut self, id: PrivatePool) {
        if let Some(memory) = self.private.get_mut(&id) {
            memory.ends = true;
        }
    }

    /// Returns whether any pool is open.
    pub fn has_pools(&self) -> bool {
        !self.private.is_empty()
    }

    /// Returns whether any pool has memory.
    pub fn has_private_memory(&self) -> bool {
        self.private.values().any(|memory| !memory.blocks.is_empty())
    }

    /// Assigns the block to this pool, or to none.
    pub(crate) fn set_private(&mut self, id: BlockId, private: Option<PrivatePool>) {
        self.leave_private(id);
        self.blocks.at_mut(id.0).private = private;
        self.enter_private(id);
    }

    /// Registers a new block that belongs to a pool.
    pub(crate) fn enter_private(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        let Some(private) = block.private else { return };
        self.segments.at_mut(block.segment.0).private_count += 1;
        let memory = self.private.get_mut(&private).expect("a pool with blocks is open");
        assert!(memory.blocks.insert(id), "{id:?} is of {private:?} already");
    }

    /// Unregisters a block that is about to vanish, or to leave the pool.
    pub(crate) fn leave_private(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        let Some(private) = block.private else { return };
        self.segments.at_mut(block.segment.0).private_count -= 1;
        let memory = self.private.get_mut(&private).expect("a pool with blocks is open");
        assert!(memory.blocks.remove(&id), "{id:?} is not listed in {private:?}");
    }

    /// Assigns the segment to this pool, or makes it ordinary memory. Its blocks are not affected.
    pub(crate) fn set_segment_private(&mut self, id: SegmentId, private: Option<PrivatePool>) {
        let row = self.segments.at_mut(id.0);
        let before = core::mem::replace(&mut row.private, private);
        if let Some(memory) = before.and_then(|before| self.private.get_mut(&before)) {
            memory.segments.remove(&id);
        }
        if let Some(memory) = private.and_then(|private| self.private.get_mut(&private)) {
            memory.segments.insert(id);
        }
    }

    /// Returns the blocks of a pool, in no meaningful order.
    pub(crate) fn blocks_of(&self, id: PrivatePool) -> impl Iterator<Item = BlockId> {
        self.private.get(&id).into_iter().flat_map(|memory| memory.blocks.iter().copied())
    }

    /// Returns one address in each segment in which the pool has blocks.
    pub fn addresses_of(&self, id: PrivatePool) -> Vec<Address> {
        let segments = self.blocks_of(id).map(|block| self.blocks.at(block.0).segment);
        let segments: BTreeSet<SegmentId> = segments.collect();
        segments.into_iter().map(|segment| self.segments.at(segment.0).base).collect()
    }

    /// Returns whether each block of the pool that is not held was freed after all work with it, or
    /// the caller keeps an event after that work.
    pub fn is_over(&self, id: PrivatePool) -> bool {
        let mut blocks = self.blocks_of(id).map(|block| self.blocks.at(block.0));
        blocks.all(|block| {
            block.state == State::Allocated || block.used_outside != OutsideUse::Unknown
        })
    }

    /// Makes the pool's memory ordinary memory. The caller has made sure that all work from before
    /// `end_pool` is complete.
    pub fn close_pool(&mut self, id: PrivatePool) {
        self.open_where(id, |_| true);
        self.private.remove(&id);
    }

    /// Returns the reuse condition that this block would get if it were freed under `ready`.
    pub fn ready_if_freed(&self, id: BlockId, ready: ReuseCondition) -> ReuseCondition {
        match self.private_pool_of(id) {
            Some(_) if rule_holds(Rule::PrivateWaitsForPool) => ReuseCondition::WithPool,
            _ => ready,
        }
    }

    /// Adopts a segment that was not used since the capture began, if one fits as if it had been
    /// reserved for this request.
    pub(crate) fn adopt(&mut self, request: &Request, block_bytes: u64) -> Option<Allocation> {
        let private = request.private?;
        // A chunk is far larger than a capture needs.
        if self.policy.chunk_bytes.is_some() {
            return None;
        }
        let begun = self.private.get(&private)?.begun;
        let segment_bytes = self.policy.private_segment_bytes(block_bytes);
        let pool = self.policy.pool_of(block_bytes);
        let found =
            self.index(pool, None).everywhere().at_least(block_bytes.min(segment_bytes)).find(
                |(rank, id)| {
                    let block = self.blocks.at(id.0);
                    // A segment for this request alone has its size (Note [Capacity]).
                    (rank.bytes == segment_bytes || rank.bytes == block_bytes)
                        && !block.is_split()
                        && !block.expandable
                        && (block.freed_at < begun.0 || !rule_holds(Rule::AdoptOnlyIdle))
                },
            );
        let (_, id) = found?;
        self.remove_free(id);
        let segment = self.blocks.at(id.0).segment;
        self.set_private(id, Some(private));
        self.set_segment_private(segment, Some(private));
        self.segments.at_mut(segment.0).requester = request.requester;
        let whole = self.keeps_whole(request, block_bytes);
        Some(self.take(id, block_bytes, request.requested_bytes, whole))
    }

    /// Adopts a part of the memory that is free for every request, where the driver has none.
    /// `named` returns the end of the last range between two addresses that nodes of the capture
    /// reference, if there is one.
    pub fn adopt_part(
        &mut self,
        request: &Request,
        named: impl Fn(Address, Address) -> Option<Address>,
    ) -> Option<Allocation> {
        let private = request.private.filter(|private| self.serves_pool(*private))?;
        if !self.has_rows() {
            return None;
        }
        let begun = self.private.get(&private)?.begun;
        let block_bytes = self.policy.block_bytes(request.requested_bytes)?;
        let pool = self.policy.pool_of(block_bytes);
        let place = |id: BlockId| {
            let block = self.blocks.at(id.0);
            if block.expandable || !self.policy.fits(block.bytes, block_bytes) {
                return None;
            }
            let idle = block.freed_at < begun.0 || !rule_holds(Rule::AdoptUnreferenced);
            let mut begin = block.address;
            loop {
                let left =
                    block.end().0.checked_sub(begin.0).filter(|left| *left >= block_bytes)?;
                let splits = self.policy.splits(pool, left, block_bytes);
                let bytes = if splits { block_bytes } else { left };
                let end = Address(begin.0 + bytes);
                let Some(named) = (!idle).then(|| named(begin, end)).flatten() else {
                    return Some((id, begin));
                };
                begin = Address(named.0.checked_next_multiple_of(BLOCK_BYTES_MIN)?);
            }
        };
        let found =
            self.index(pool, None).everywhere().at_least(block_bytes).find_map(|(_, id)| place(id));
        let (mut id, begin) = found?;
        self.remove_free(id);
        let address = self.blocks.at(id.0).address;
        if begin != address {
            let part = self.split(id, begin.0 - address.0);
            self.insert_free(id);
            id = part;
        }
        let part = self.take(id, block_bytes, request.requested_bytes, false);
        self.set_private(part.block, Some(private));
        Some(part)
    }

    /// Returns whether a request is for a private pool that no longer serves requests.
    pub(crate) fn is_refused(&self, private: Option<PrivatePool>) -> bool {
        private.is_some_and(|private| !self.serves_pool(private))
    }
}

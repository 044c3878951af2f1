//! The allocator of one CUDA context: its fields, and the small operations on blocks that
//! allocating, freeing and releasing share.

pub(crate) mod check;
pub(crate) mod counts;
pub(crate) mod views;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::allocator::counts::Counts;
use crate::arenas::Arenas;
use crate::block::{Block, OutsideUse, SegmentRow, State};
use crate::capacity::Capacity;
use crate::free_index::FreeIndex;
use crate::idle::decay::{Decay, IdleEpoch};
use crate::policy::Policy;
use crate::private::{PrivateMemory, private_index};
use crate::request::Request;
use crate::stats::Stats;
use crate::table::Table;
use crate::tags::Tags;
use crate::types::{Address, BlockId, Completed, Pool, PrivatePool, SegmentId};

/// Number of requests for which the tables are checked at once.
pub(crate) const REQUESTS_WITH_ROWS_MAX: u32 = 32;

/// A clone is for tests that try every continuation; two allocators never share a context.
#[derive(Clone)]
pub struct Allocator {
    pub(crate) policy: Policy,
    pub(crate) blocks: Table<Block>,
    pub(crate) segments: Table<SegmentRow>,
    pub(crate) segment_at: BTreeMap<Address, SegmentId>,
    pub(crate) small: FreeIndex,
    pub(crate) large: FreeIndex,
    /// The private pools that are open, each with its own free blocks.
    pub(crate) private: BTreeMap<PrivatePool, PrivateMemory>,
    pub(crate) tags: Tags,
    pub(crate) counts: Counts,
    pub(crate) segments_reserved_count: u64,
    /// The ages of free blocks. Advances with every request, and with every epoch of Note [Idle
    /// memory].
    pub(crate) clock: u64,
    pub(crate) pressure: bool,
    pub(crate) capacity: Capacity,
    pub(crate) decay: Decay,
    /// The epoch before which free blocks stay where they are. See Note [Excess] in free_limit.rs.
    pub(crate) left_before: IdleEpoch,
    /// Number of requests for which the tables have rows without a check.
    pub(crate) requests_with_rows: u32,
    /// Whether large requests no longer cut segments. See Note [Exported blocks] in
    /// exported_blocks.rs.
    pub(crate) whole_large: bool,
    pub(crate) arenas: Arenas,
    /// Segments that may have nothing left but retired and free blocks.
    pub(crate) leaving: Vec<SegmentId>,
    /// Completed pending frees, for the recorder. `None` without a recorder.
    pub(crate) completed: Option<Vec<Completed>>,
}

impl Allocator {
    pub fn new(policy: Policy) -> Allocator {
        Allocator {
            policy,
            blocks: Table::new(),
            segments: Table::new(),
            segment_at: BTreeMap::new(),
            small: FreeIndex::new(),
            large: FreeIndex::new(),
            private: BTreeMap::new(),
            tags: Tags::new(),
            counts: Counts::default(),
            segments_reserved_count: 0,
            clock: 0,
            pressure: false,
            capacity: Capacity::default(),
            decay: Decay::default(),
            left_before: IdleEpoch::NEVER,
            requests_with_rows: 0,
            whole_large: false,
            arenas: Arenas::default(),
            leaving: Vec::new(),
            completed: None,
        }
    }

    /// Makes the allocator keep completed pending frees for `take_completed`.
    pub fn report_completed(&mut self) {
        self.completed.get_or_insert_default();
    }

    /// Stops keeping completed pending frees.
    pub fn forget_completed(&mut self) {
        self.completed = None;
    }

    /// Returns the pending frees that have completed since the last call, in that order. The caller
    /// must hold the lock under which they completed: afterwards their addresses may be handed out
    /// again.
    pub fn take_completed(&mut self) -> Vec<Completed> {
        self.completed.as_mut().map(core::mem::take).unwrap_or_default()
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sets the limit of all segments together. Segments above it stay until released.
    pub fn set_limit(&mut self, limit_bytes: Option<u64>) {
        self.policy.limit_bytes = limit_bytes;
    }

    /// Sets the size of the next chunk, where segments are chunks. See Note [Chunks] in policy.rs.
    pub fn set_chunk(&mut self, chunk_bytes: u64) {
        if self.policy.chunk_bytes.is_some() {
            self.policy.chunk_bytes = Some(chunk_bytes);
        }
    }

    pub fn stats(&self) -> Stats {
        self.counts.stats()
    }

    /// Returns the bytes of all blocks that the program holds, as `stats` counts them.
    #[inline]
    pub fn allocated_bytes(&self) -> u64 {
        self.counts.allocated_bytes()
    }

    /// Returns the bytes of all segments, as `stats` counts them.
    pub fn reserved_bytes(&self) -> u64 {
        self.counts.kept.reserved_bytes.all.current
    }

    /// Returns whether memory may be held back to save calls, because much more can be reserved.
    pub fn is_memory_plentiful(&self) -> bool {
        self.capacity.is_plentiful(self.reserved_bytes())
    }

    /// Returns the counters, to reset them.
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Returns whether memory is known to be short. The first reservation that fails sets this, and
    /// so may the caller, which may also clear it. See Note [Pressure] in allocate.rs.
    pub fn pressure(&self) -> bool {
        self.pressure
    }

    pub fn set_pressure(&mut self, pressure: bool) {
        self.pressure = pressure;
    }

    /// Returns whether the host has memory for the rows that requests may add to the tables. If
    /// not, requests fail, and the driver may serve them.
    #[inline]
    pub(crate) fn has_rows(&mut self) -> bool {
        if self.requests_with_rows > 0 {
            self.requests_with_rows -= 1;
            return true;
        }
        self.look_for_rows()
    }

    #[cold]
    fn look_for_rows(&mut self) -> bool {
        /// The rows that `REQUESTS_WITH_ROWS_MAX` requests may add, and those of several threads
        /// before one of them checks again.
        const SPARE_COUNT: usize = 160;
        let found = self.blocks.has_room(SPARE_COUNT) && self.segments.has_room(SPARE_COUNT);
        self.requests_with_rows = if found { REQUESTS_WITH_ROWS_MAX } else { 0 };
        found
    }

    /// Returns the free blocks of the context, or those of a private pool.
    pub(crate) fn index(&self, pool: Pool, private: Option<PrivatePool>) -> &FreeIndex {
        match (private, pool) {
            (Some(id), pool) => {
                self.private.get(&id).expect("the private pool is open").index(pool)
            }
            (None, Pool::Small) => &self.small,
            (None, Pool::Large) => &self.large,
        }
    }

    /// Puts a freed block into the index of the requests that may take it.
    #[inline(never)]
    pub(crate) fn insert_free(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        let index = match (block.private, block.pool) {
            (None, Pool::Small) => &mut self.small,
            (None, Pool::Large) => &mut self.large,
            (Some(private), pool) => private_index(&mut self.private, private, pool),
        };
        index.insert(id, block);
        if let State::Tagged(tag) = block.state
            && tag.ready.waits_for_work()
        {
            self.tags.insert(id, block.pool, tag);
        }
        if block.counts_as_split() && !block.is_pending() {
            self.counts.split_came(block.bytes);
        }
        self.note_end_changes(id);
    }

    /// Reverses `insert_free`. Call it before anything about the block changes.
    #[inline(never)]
    pub(crate) fn remove_free(&mut self, id: BlockId) {
        self.note_end_changes(id);
        let block = self.blocks.at(id.0);
        let index = match (block.private, block.pool) {
            (None, Pool::Small) => &mut self.small,
            (None, Pool::Large) => &mut self.large,
            (Some(private), pool) => private_index(&mut self.private, private, pool),
        };
        index.remove(id, block);
        if let State::Tagged(tag) = block.state
            && tag.ready.waits_for_work()
        {
            self.tags.remove(id, block.pool, tag);
        }
        if block.is_pending() {
            self.note_completed(id);
        } else if block.counts_as_split() {
            self.counts.split_went(block.bytes);
        }
    }

    /// Records that a pending free has completed.
    #[inline(never)]
    fn note_completed(&mut self, id: BlockId) {
        let Block { pool, address, bytes, requested_bytes, .. } = *self.blocks.at(id.0);
        if let Some(completed) = &mut self.completed {
            completed.push(Completed { block: id, address, requested_bytes });
        }
        self.counts.end_pending(pool, bytes);
        self.counts.is_inactive(pool, requested_bytes);
        self.blocks.at_mut(id.0).requested_bytes = 0;
    }

    /// Adds a segment of one block, which is in no index yet, for this request.
    pub(crate) fn insert_segment(
        &mut self,
        base: Address,
        bytes: u64,
        pool: Pool,
        request: &Request,
    ) -> BlockId {
        let registration = self.segments_reserved_count;
        self.segments_reserved_count += 1;
        self.counts.kept.segment.increase(pool, 1);
        self.counts.kept.num_device_alloc += 1;
        if request.private.is_none() {
            self.decay.segment_came(bytes);
        }
        if self.policy.is_oversize(bytes) {
            self.counts.kept.oversize_segments.increase(1);
        }
        let row = SegmentRow::new(base, bytes, pool, registration, request.requester);
        self.insert_row(SegmentRow { private: request.private, ..row })
    }

    /// Adds a segment of one block, which is in no index yet.
    pub(crate) fn insert_row(&mut self, row: SegmentRow) -> BlockId {
        let SegmentRow { base, bytes, pool, registration, expandable, private, .. } = row;
        self.assert_apart(base, bytes);
        let segment = SegmentId(self.segments.insert(row));
        let first = BlockId(self.blocks.insert(Block {
            segment,
            pool,
            address: base,
            bytes,
            requested_bytes: 0,
            registration,
            previous: None,
            next: None,
            state: State::Free,
            exported: false,
            expandable,
            private,
            used_outside: OutsideUse::None,
            behind: None,
            freed_at: self.clock,
            idle_span: None,
        }));
        let row = self.segments.at_mut(segment.0);
        (row.first, row.last) = (first, first);
        if private.is_some() {
            self.set_segment_private(segment, private);
            self.enter_private(first);
        }
        self.segment_at.insert(base, segment);
        self.counts.kept.reserved_bytes.increase(pool, bytes);
        self.note_capacity();
        first
    }

    /// Cuts a block that is in no index after `bytes`. The remainder becomes a separate block that
    /// waits for whatever the whole waited for, and is not in an index either.
    pub(crate) fn split(&mut self, id: BlockId, bytes: u64) -> BlockId {
        let (block, number, place) = self.blocks.beside(id.0);
        let remainder = BlockId(number);
        let rest = block.cut(id, bytes, remainder, place);
        let (after, segment, private) = (rest.next, rest.segment, rest.private);
        self.link_after(remainder, after, segment);
        if private.is_some() {
            self.enter_private(remainder);
        }
        remainder
    }

    /// Links the block that now precedes the next one, or that now ends the segment.
    #[inline(always)]
    pub(crate) fn link_after(&mut self, id: BlockId, after: Option<BlockId>, segment: SegmentId) {
        match after {
            Some(after) => self.blocks.at_mut(after.0).previous = Some(id),
            None => self.segments.at_mut(segment.0).last = id,
        }
    }

    /// Asserts that no byte is in two segments, or it could be handed out twice.
    fn assert_apart(&self, base: Address, bytes: u64) {
        let end = base.0.checked_add(bytes).expect("the segment ends inside the address space");
        let below = self.segment_at.range(..Address(end)).next_back();
        if let Some((_, &segment)) = below {
            let other = self.segments.at(segment.0);
            let other_end = other.base.0 + other.bytes;
            assert!(other_end <= base.0, "{base:?}+{bytes} overlaps {:?}", other.base);
        }
    }
}

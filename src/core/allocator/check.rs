//! The invariants of the allocator, numbered, and `check()`, which walks everything and panics with
//! the number of the first one that does not hold. It is for tests, because it takes time for every
//! block.
//!
//! * I1: the blocks of a segment tile it: the first at its base, each next at the end of the
//!   previous, the last at its end.
//! * I2: adjacent blocks refer to each other, and all blocks of a segment refer to it and its pool.
//! * I3: every block begins at a multiple of 512 and is a multiple of 512 long.
//! * I4: segments do not overlap and are listed by their base.
//! * I5: no two adjacent blocks could coalesce.
//! * I6: a block is in the index of the requests that may take it, and in no other.
//! * I7: exactly the blocks whose reuse condition waits for work are listed, by age, and those on a
//!   stream with their stream and pool.
//! * I8: a segment counts its allocated blocks.
//! * I9: requested bytes fit into the block, and only an active block has any.
//! * I10: every current statistic equals the count of a walk over blocks and segments.
//! * I11: no statistic exceeds its peak, and each equals the added minus the removed.
//! * I12: every row belongs to a segment that is listed: no block is lost.
//! * I13: a segment counts its exported blocks; the freed ones are in no index and count as
//!   retired.
//! * I14: a segment with exported blocks in which nothing is allocated and nothing waits is listed
//!   as leaving.
//! * I15: exactly the segments in arenas are expandable; they lie in an arena of their pool, and no
//!   two touch. Their blocks are marked as expandable too.
//! * I16: mappings tile the expandable segments.
//! * I17: memory about to be mapped lies in an arena and in no segment.
//! * I18: a segment refers to its first and its last block.
//! * I19: a block belongs to an open private pool or to none, and all blocks of a segment that
//!   belongs to a pool do so too. A pool lists its blocks and segments, and a segment counts blocks
//!   of pools. Only blocks of a private pool wait for one, or were used outside of its capture.
//! * I20: at most `REQUESTS_WITH_ROWS_MAX` requests go on without another check of the tables'
//!   rows.

use crate::allocator::{Allocator, REQUESTS_WITH_ROWS_MAX};
use crate::block::{Block, SegmentRow, State};
use crate::policy::BLOCK_BYTES_MIN;
use crate::private::PrivateMemory;
use crate::stats::{PoolStats, Stat};
use crate::tags::may_coalesce;
use crate::types::{BlockId, Pool, SegmentId};

impl Allocator {
    pub fn check(&self) {
        let rows_count = self.requests_with_rows;
        assert!(rows_count <= REQUESTS_WITH_ROWS_MAX, "I20: {rows_count} requests have room");
        let mut count = Count::default();
        for (&base, &id) in &self.segment_at {
            let segment = self.segments.at(id.0);
            assert!(segment.base == base, "I4: {id:?} is listed at {base:?}: {segment:?}");
            self.check_segment(id, segment, &mut count);
        }
        self.check_apart();
        self.check_private();
        self.check_arenas();
        self.check_counts(&count);
        self.check_stats(&count);
    }

    fn check_segment(&self, id: SegmentId, segment: &SegmentRow, count: &mut Count) {
        count.segment.add(segment.pool, u64::from(!segment.expandable));
        count.reserved_bytes.add(segment.pool, segment.bytes);
        let mut end = segment.base;
        let mut previous = None;
        let (mut allocated_count, mut exported_count, mut waits) = (0, 0, false);
        let mut private_count = 0;
        for block_id in self.blocks_from(segment.first) {
            let block = self.blocks.at(block_id.0);
            assert!(block.address == end, "I1: {block_id:?} should begin at {end:?}: {block:?}");
            assert!(block.previous == previous, "I2: {block_id:?} after {previous:?}: {block:?}");
            assert!(block.segment == id, "I2: {block_id:?} is in {id:?}: {block:?}");
            assert!(block.pool == segment.pool, "I2: {block_id:?} is in a pool of its own");
            assert!(block.expandable == segment.expandable, "I15: {block_id:?}: {block:?}");
            let of_segment = segment.private.is_none() || block.private == segment.private;
            let open = block.private.is_none_or(|private| self.private.contains_key(&private));
            assert!(of_segment && open, "I19: {block_id:?} in {segment:?}: {block:?}");
            if let Some(memory) = block.private.and_then(|private| self.private.get(&private)) {
                assert!(
                    memory.blocks.contains(&block_id),
                    "I19: {block_id:?} is not listed: {block:?}"
                );
            }
            self.check_block(block_id, block);
            self.check_neighbours(previous, block_id, block);
            count.block(block);
            allocated_count += u32::from(block.state == State::Allocated);
            exported_count += u32::from(block.exported);
            private_count += u32::from(block.private.is_some());
            waits |= block.tag().is_some() || block.private.is_some();
            (end, previous) = (block.end(), Some(block_id));
        }
        assert!(previous == Some(segment.last), "I18: {id:?} ends with {previous:?}: {segment:?}");
        let segment_end = segment.base.0 + segment.bytes;
        assert!(end.0 == segment_end, "I1: the last block of {id:?} ends at {end:?}");
        assert!(allocated_count == segment.allocated_count, "I8: {id:?} has {allocated_count}");
        assert!(exported_count == segment.exported_count, "I13: {id:?} has {exported_count}");
        assert!(private_count == segment.private_count, "I19: {id:?} has {private_count}");
        let leaves = exported_count > 0 && allocated_count == 0 && !waits && !segment.expandable;
        assert!(!leaves || self.leaving.contains(&id), "I14: {id:?} is not listed: {segment:?}");
    }

    fn check_block(&self, id: BlockId, block: &Block) {
        assert!(block.bytes > 0, "I3: {id:?} is empty: {block:?}");
        assert!(block.bytes.is_multiple_of(BLOCK_BYTES_MIN), "I3: {id:?}: {block:?}");
        assert!(block.address.0.is_multiple_of(BLOCK_BYTES_MIN), "I3: {id:?}: {block:?}");
        let index = self.index(block.pool, block.private);
        assert!(index.holds(id, block), "I6: {id:?} is not listed: {block:?}");
        let of_pool = block.tag().is_some() && block.work_tag().is_none();
        assert!(!of_pool || block.private.is_some(), "I19: {id:?} waits for no pool: {block:?}");
        let outside = block.used_outside;
        assert!(
            !outside.is_any() || block.private.is_some(),
            "I19: {id:?} is of no pool: {block:?}"
        );
        if let Some(tag) = block.work_tag() {
            assert!(
                self.tags.holds(id, block.pool, tag),
                "I7: the tag of {id:?} is not listed: {block:?}"
            );
        }
        let allocated = block.state == State::Allocated;
        let active = allocated || block.is_pending();
        assert!(block.requested_bytes <= block.bytes, "I9: {id:?}: {block:?}");
        assert!((block.requested_bytes > 0) == active, "I9: {id:?}: {block:?}");
    }

    fn check_neighbours(&self, previous: Option<BlockId>, id: BlockId, block: &Block) {
        let Some(previous) = previous.map(|previous| self.blocks.at(previous.0)) else { return };
        let both_free = previous.state != State::Allocated && block.state != State::Allocated;
        let retired = previous.exported || block.exported;
        let one_pool = previous.private == block.private;
        let could =
            both_free && !retired && one_pool && may_coalesce(&previous.state, &block.state);
        assert!(!could, "I5: {id:?} and the one before should be one: {previous:?} {block:?}");
    }

    fn check_private(&self) {
        let listed = |count: fn(&PrivateMemory) -> usize| self.private.values().map(count).sum();
        let private_count = |(_, row): (u32, &SegmentRow)| row.private_count as usize;
        let blocks_count: usize = listed(|memory| memory.blocks.len());
        assert!(
            blocks_count == self.segments.iter().map(private_count).sum(),
            "I19: {blocks_count}"
        );
        let whole = self.segments.iter().filter(|(_, row)| row.private.is_some());
        let segments_count: usize = listed(|memory| memory.segments.len());
        assert!(segments_count == whole.count(), "I19: {segments_count} segments");
    }

    fn check_apart(&self) {
        let mut end = 0;
        for (base, id) in &self.segment_at {
            assert!(base.0 >= end, "I4: {id:?} at {base:?} begins before {end:#x}");
            end = base.0 + self.segments.at(id.0).bytes;
        }
        let rows_count = self.segments.iter().count();
        assert!(rows_count == self.segment_at.len(), "I4: {rows_count} segments, not all listed");
    }

    fn check_arenas(&self) {
        let arenas = &self.arenas;
        let arena_of =
            |at: u64| arenas.list.iter().find(|arena| arena.base.0 <= at && at < arena.end().0);
        let mut mapped = arenas.mappings.iter();
        let mut last_end = None;
        for (base, id) in &self.segment_at {
            let row = self.segments.at(id.0);
            let arena = arena_of(base.0);
            assert!(arena.is_some() == row.expandable, "I15: {row:?} in {arena:?}");
            let Some(arena) = arena else { continue };
            let inside = arena.pool == row.pool && row.end() <= arena.end();
            assert!(inside, "I15: {row:?} in {arena:?}");
            let touches = last_end == Some(*base) && *base != arena.base;
            assert!(!touches, "I15: {row:?} touches the one before");
            let mut end = *base;
            while end < row.end() {
                let (&base, &bytes) = mapped.next().expect("I16: memory for every segment");
                assert!(base == end, "I16: {base:?} is mapped, not {end:?}: {row:?}");
                end.0 += bytes;
            }
            assert!(end == row.end(), "I16: the mappings end at {end:?}: {row:?}");
            last_end = Some(end);
        }
        assert!(mapped.next().is_none(), "I16: something is mapped beyond the segments");
        for (place, mapping) in arenas.arriving.iter().enumerate() {
            assert!(arena_of(mapping.base.0).is_some(), "I17: {mapping:?} is in no arena");
            let overlaps = |base: u64, end: u64| base < mapping.end().0 && mapping.base.0 < end;
            let below = self.segment_at.range(..mapping.end()).next_back();
            let below = below.map(|(_, id)| self.segments.at(id.0));
            let there = below.is_some_and(|row| overlaps(row.base.0, row.end().0));
            let others = &arenas.arriving[place + 1..];
            let twice = others.iter().any(|other| overlaps(other.base.0, other.end().0));
            assert!(!there && !twice, "I17: {mapping:?} arrives where something is");
        }
    }

    fn check_counts(&self, count: &Count) {
        let common = self.small.blocks_count() + self.large.blocks_count();
        let private = self.private.values().flat_map(|memory| {
            [Pool::Small, Pool::Large].map(|pool| memory.index(pool).blocks_count())
        });
        let listed = common + private.sum::<usize>();
        assert!(listed == count.takeable, "I6: {listed} listed, {} takeable", count.takeable);
        let tagged = self.tags.blocks_count();
        assert!(tagged == count.tagged, "I7: {tagged} listed, {} tagged", count.tagged);
        let rows = self.blocks.iter().count();
        assert!(rows == count.blocks, "I12: {rows} rows, {} blocks", count.blocks);
    }

    fn check_stats(&self, count: &Count) {
        assert!(self.counts.is_between_operations(), "I10: an operation is in progress");
        let stats = &self.stats();
        check_stat("allocation", &stats.allocation, &count.allocation);
        check_stat("segment", &stats.segment, &count.segment);
        check_stat("active", &stats.active, &count.active);
        check_stat("inactive_split", &stats.inactive_split, &count.inactive_split);
        check_stat("allocated_bytes", &stats.allocated_bytes, &count.allocated_bytes);
        check_stat("reserved_bytes", &stats.reserved_bytes, &count.reserved_bytes);
        check_stat("active_bytes", &stats.active_bytes, &count.active_bytes);
        check_stat("retired_bytes", &stats.retired_bytes, &count.retired_bytes);
        check_stat("requested_bytes", &stats.requested_bytes, &count.requested_bytes);
        let split_bytes = &count.inactive_split_bytes;
        check_stat("inactive_split_bytes", &stats.inactive_split_bytes, split_bytes);
    }
}

fn check_stat(name: &str, stats: &PoolStats, count: &PerPool) {
    for (stat, counted) in
        [(&stats.small, count.small), (&stats.large, count.large), (&stats.all, count.all())]
    {
        assert!(stat.current == counted, "I10: {name} is {stat:?}, counted {counted}");
        let Stat { current, peak, allocated, freed } = *stat;
        assert!(current <= peak, "I11: {name} is above its peak: {stat:?}");
        assert!(current >= allocated.saturating_sub(freed), "I11: {name}: {stat:?}");
    }
}

#[derive(Default)]
struct PerPool {
    small: u64,
    large: u64,
}

impl PerPool {
    fn add(&mut self, pool: Pool, amount: u64) {
        match pool {
            Pool::Small => self.small += amount,
            Pool::Large => self.large += amount,
        }
    }

    fn all(&self) -> u64 {
        self.small + self.large
    }
}

/// The statistics, counted by a walk.
#[derive(Default)]
struct Count {
    blocks: usize,
    takeable: usize,
    tagged: usize,
    segment: PerPool,
    reserved_bytes: PerPool,
    allocation: PerPool,
    allocated_bytes: PerPool,
    active: PerPool,
    active_bytes: PerPool,
    requested_bytes: PerPool,
    retired_bytes: PerPool,
    inactive_split: PerPool,
    inactive_split_bytes: PerPool,
}

impl Count {
    fn block(&mut self, block: &Block) {
        self.blocks += 1;
        self.tagged += usize::from(block.work_tag().is_some());
        let allocated = block.state == State::Allocated;
        if block.is_retired() {
            self.retired_bytes.add(block.pool, block.bytes);
        }
        if allocated {
            self.allocation.add(block.pool, 1);
            self.allocated_bytes.add(block.pool, block.bytes);
        }
        if allocated || block.is_pending() {
            self.active.add(block.pool, 1);
            self.active_bytes.add(block.pool, block.bytes);
            self.requested_bytes.add(block.pool, block.requested_bytes);
        } else {
            self.takeable += usize::from(!block.exported);
            if block.counts_as_split() {
                self.inactive_split.add(block.pool, 1);
                self.inactive_split_bytes.add(block.pool, block.bytes);
            }
        }
    }
}

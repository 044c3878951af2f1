//! The counters that the allocator keeps while it works, and the statistics computed from them on
//! request.
//!
//! A request and a free add to a few sums of what was added and removed. Derived numbers are not
//! counted: both pools together are the sum of each, the current value is the difference of the two
//! sums, and an active block is an allocated one or a pending one.
//!
//! Note [Peaks]. A number is at its peak where it falls after it has risen. So a peak is checked
//! before the first fall after a rise, and where statistics are read, not with each rise.

use crate::stats::{PoolStats, Stat, Stats};
use crate::types::Pool;

/// The sums of what was added and removed, since the beginning.
#[derive(Clone, Copy, Default)]
struct Flow {
    added: u64,
    removed: u64,
}

/// Some blocks of one pool, and their bytes.
#[derive(Clone, Copy, Default)]
struct Blocks {
    count: Flow,
    bytes: Flow,
}

/// The counters of one pool.
#[derive(Clone, Copy, Default)]
struct PoolCounts {
    /// Held by the program.
    allocated: Blocks,
    /// Freed, and not yet reusable: active as well.
    pending: Blocks,
    /// Requested bytes of the active blocks.
    requested_bytes: Flow,
    /// Free, in segments of more than one block.
    split: Blocks,
}

/// The change of `split` by the operation in progress: PyTorch counts the difference that a whole
/// operation makes, not its steps.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct SplitChange {
    blocks: i64,
    bytes: i64,
}

/// The counters of an allocator. See the module documentation.
#[derive(Clone, Default)]
pub struct Counts {
    pools: [PoolCounts; 2],
    /// Whether blocks were allocated since their peaks were checked.
    rises: bool,
    /// Whether split blocks were added since their peaks were checked.
    splits_rise: bool,
    change: SplitChange,
    /// The remaining statistics. For the counters above it keeps only peaks and the totals at the
    /// last reset.
    pub(crate) kept: Stats,
}

impl Counts {
    /// Returns all current statistics.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.kept.clone();
        for (shown, flows) in stats.flowing().into_iter().zip(self.flows()) {
            let [small, large] = flows;
            let all =
                Flow { added: small.added + large.added, removed: small.removed + large.removed };
            small.shown_in(&mut shown.small);
            large.shown_in(&mut shown.large);
            all.shown_in(&mut shown.all);
        }
        stats
    }

    /// Resets every peak to the current value.
    pub fn reset_peaks(&mut self) {
        let mut now = self.stats();
        now.reset_peaks();
        self.kept.take_peaks(&now);
    }

    /// Resets every total and counter.
    pub fn reset_totals(&mut self) {
        self.kept.reset_totals();
        let flows = self.flows();
        for (kept, [small, large]) in self.kept.flowing().into_iter().zip(flows) {
            let begin_at = |stat: &mut Stat, flow: Flow| {
                stat.allocated += flow.added;
                stat.freed += flow.removed;
            };
            begin_at(&mut kept.small, small);
            begin_at(&mut kept.large, large);
            [small, large].into_iter().for_each(|flow| begin_at(&mut kept.all, flow));
        }
    }

    /// Raises every peak to at least the other one's.
    pub fn raise_peaks(&mut self, other: &Stats) {
        self.kept.raise_peaks(other);
    }

    /// Returns the bytes of all blocks that the program holds.
    #[inline]
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.allocated.bytes.there()).sum()
    }

    /// Returns the most bytes that were active.
    pub(crate) fn active_bytes_peak(&self) -> u64 {
        let now: u64 = self.pools.iter().map(|pool| pool.active().bytes.there()).sum();
        now.max(self.kept.active_bytes.all.peak)
    }

    /// Returns the bytes of free blocks in segments of more than one, before the operation in
    /// progress.
    pub(crate) fn split_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.split.bytes.there()).sum()
    }

    /// Counts a block that was handed out.
    #[inline]
    pub(crate) fn allocated(&mut self, pool: Pool, bytes: u64, requested_bytes: u64) {
        self.rises = true;
        let counts = &mut self.pools[pool as usize];
        counts.allocated.come(bytes);
        counts.requested_bytes.added += requested_bytes;
    }

    /// Counts a block that the program no longer holds. `begin_pending` or `is_inactive` counts its
    /// new state.
    #[inline]
    pub(crate) fn freed(&mut self, pool: Pool, bytes: u64) {
        if self.rises {
            self.note_peaks();
        }
        self.pools[pool as usize].allocated.go(bytes);
    }

    /// Counts a freed block that is not yet reusable.
    pub(crate) fn begin_pending(&mut self, pool: Pool, bytes: u64) {
        self.pools[pool as usize].pending.come(bytes);
    }

    /// Counts the end of a pending free. The caller calls `is_inactive` too.
    pub(crate) fn end_pending(&mut self, pool: Pool, bytes: u64) {
        if self.rises {
            self.note_peaks();
        }
        self.pools[pool as usize].pending.go(bytes);
    }

    /// Records that a block with these requested bytes is no longer active.
    #[inline]
    pub(crate) fn is_inactive(&mut self, pool: Pool, requested_bytes: u64) {
        self.pools[pool as usize].requested_bytes.removed += requested_bytes;
    }

    /// Counts a new free block in a segment with several; it takes effect once the operation has
    /// ended.
    #[inline]
    pub(crate) fn split_came(&mut self, bytes: u64) {
        self.change.blocks += 1;
        self.change.bytes += bytes as i64;
    }

    /// Counts the removal of such a block.
    #[inline]
    pub(crate) fn split_went(&mut self, bytes: u64) {
        self.change.blocks -= 1;
        self.change.bytes -= bytes as i64;
    }

    /// Ends the operation in this pool.
    pub(crate) fn settle_split(&mut self, pool: Pool) {
        let SplitChange { blocks, bytes } = core::mem::take(&mut self.change);
        self.split_changed(pool, blocks, bytes);
    }

    /// Counts a whole operation that changed the number of free blocks in segments with several,
    /// and their bytes.
    #[inline(always)]
    pub(crate) fn split_changed(&mut self, pool: Pool, blocks: i64, bytes: i64) {
        if self.splits_rise && (blocks < 0 || bytes < 0) {
            self.note_split_peaks();
        }
        let split = &mut self.pools[pool as usize].split;
        split.count.change(blocks);
        split.bytes.change(bytes);
        if blocks > 0 || bytes > 0 {
            self.splits_rise = true;
        }
    }

    /// Counts a whole operation by which a free block became smaller.
    #[inline(always)]
    pub(crate) fn split_shrank(&mut self, pool: Pool, bytes: u64) {
        if self.splits_rise {
            self.note_split_peaks();
        }
        self.pools[pool as usize].split.bytes.removed += bytes;
    }

    /// Counts a whole operation by which a free block became larger.
    #[inline(always)]
    pub(crate) fn split_grew(&mut self, pool: Pool, bytes: u64) {
        self.pools[pool as usize].split.bytes.added += bytes;
        self.splits_rise = true;
    }

    /// Counts a whole operation that added a free block.
    #[inline(always)]
    pub(crate) fn split_rose(&mut self, pool: Pool, bytes: u64) {
        self.pools[pool as usize].split.come(bytes);
        self.splits_rise = true;
    }

    /// Returns whether no operation is in progress. For `check()`.
    pub(crate) fn is_between_operations(&self) -> bool {
        self.change == SplitChange::default()
    }

    /// Updates the peaks. Call it before allocated or active numbers fall. See Note [Peaks].
    #[inline(never)]
    fn note_peaks(&mut self) {
        self.rises = false;
        let [allocation, active, allocated_bytes, active_bytes, requested_bytes, ..] =
            self.flows().map(|flows| flows.map(Flow::there));
        self.kept.allocation.reached(allocation);
        self.kept.active.reached(active);
        self.kept.allocated_bytes.reached(allocated_bytes);
        self.kept.active_bytes.reached(active_bytes);
        self.kept.requested_bytes.reached(requested_bytes);
    }

    /// Updates the peaks of split blocks. Call it before those numbers fall.
    #[inline(never)]
    fn note_split_peaks(&mut self) {
        self.splits_rise = false;
        let [.., split, split_bytes] = self.flows().map(|flows| flows.map(Flow::there));
        self.kept.inactive_split.reached(split);
        self.kept.inactive_split_bytes.reached(split_bytes);
    }

    /// Returns the flows of both pools, in the order of `Stats::flowing`.
    #[inline(always)]
    fn flows(&self) -> [[Flow; 2]; 7] {
        let active = self.pools.each_ref().map(PoolCounts::active);
        let of = |flow: fn(&PoolCounts) -> Flow| self.pools.each_ref().map(flow);
        [
            of(|pool| pool.allocated.count),
            active.map(|active| active.count),
            of(|pool| pool.allocated.bytes),
            active.map(|active| active.bytes),
            of(|pool| pool.requested_bytes),
            of(|pool| pool.split.count),
            of(|pool| pool.split.bytes),
        ]
    }
}

impl Flow {
    #[inline]
    fn there(self) -> u64 {
        debug_assert!(self.added >= self.removed, "{} went, and {} came", self.removed, self.added);
        self.added - self.removed
    }

    /// Changes the value up or down, in one step.
    #[inline]
    fn change(&mut self, by: i64) {
        match by {
            0 => {}
            1.. => self.added += by as u64,
            _ => self.removed += by.unsigned_abs(),
        }
    }

    /// Writes the totals since those in `stat`, and the higher peak.
    fn shown_in(self, stat: &mut Stat) {
        let current = self.there();
        *stat = Stat {
            current,
            peak: stat.peak.max(current),
            allocated: self.added - stat.allocated,
            freed: self.removed - stat.freed,
        };
    }
}

impl Blocks {
    #[inline]
    fn come(&mut self, bytes: u64) {
        self.count.added += 1;
        self.bytes.added += bytes;
    }

    #[inline]
    fn go(&mut self, bytes: u64) {
        self.count.removed += 1;
        self.bytes.removed += bytes;
    }
}

impl PoolCounts {
    /// Returns the active blocks. Each was added when it was allocated.
    #[inline]
    fn active(&self) -> Blocks {
        let active = |allocated: Flow, pending: Flow| Flow {
            added: allocated.added,
            removed: allocated.removed + pending.removed - pending.added,
        };
        Blocks {
            count: active(self.allocated.count, self.pending.count),
            bytes: active(self.allocated.bytes, self.pending.bytes),
        }
    }
}

impl Stat {
    #[inline]
    fn reached(&mut self, current: u64) {
        // Most of the time nothing is to be written.
        if current > self.peak {
            self.peak = current;
        }
    }
}

impl PoolStats {
    /// So much is there in each pool.
    #[inline]
    fn reached(&mut self, [small, large]: [u64; 2]) {
        self.small.reached(small);
        self.large.reached(large);
        self.all.reached(small + large);
    }
}

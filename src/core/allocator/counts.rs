//! What the allocator counts while it works, and the statistics that are made of it when they are
//! asked for.
//!
//! A request and a free add to a few sums of what came and went. What follows from others is not
//! counted: both pools together are the sum of each, what is there is what came less what went, and
//! an active block is an allocated one or a pending one.
//!
//! Note [Peaks]. A number is at its peak where it falls after it has risen. So a peak is looked at
//! before the first fall after a rise, and where statistics are asked for, not with each rise.

use crate::stats::{PoolStats, Stat, Stats};
use crate::types::Pool;

/// What came and what went, since the beginning.
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

/// What is counted of one pool.
#[derive(Clone, Copy, Default)]
struct PoolCounts {
    /// Held by the program.
    allocated: Blocks,
    /// Freed, and not to be used again yet: active as well.
    pending: Blocks,
    /// What the program asked for, of the active blocks.
    requested_bytes: Flow,
    /// Free, in segments of more than one block.
    split: Blocks,
}

/// What the operation in progress does to `split`: PyTorch counts the difference that a whole
/// operation makes, not its steps.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct SplitChange {
    blocks: i64,
    bytes: i64,
}

/// See the text of the module.
#[derive(Clone, Default)]
pub struct Counts {
    pools: [PoolCounts; 2],
    /// Blocks were allocated since their peaks were looked at.
    rises: bool,
    /// The same of split ones.
    splits_rise: bool,
    change: SplitChange,
    /// All else. Of what flows here it has the peaks, and what its totals were when they began
    /// anew.
    pub(crate) kept: Stats,
}

impl Counts {
    /// Everything as it is now.
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

    /// Every peak becomes the current value.
    pub fn reset_peaks(&mut self) {
        let mut now = self.stats();
        now.reset_peaks();
        self.kept.take_peaks(&now);
    }

    /// Every total and counter begins anew.
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

    /// Every peak is at least the other one's.
    pub fn raise_peaks(&mut self, other: &Stats) {
        self.kept.raise_peaks(other);
    }

    /// The bytes of all blocks that the program holds.
    #[inline]
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.allocated.bytes.there()).sum()
    }

    /// The most bytes that were active.
    pub(crate) fn active_bytes_peak(&self) -> u64 {
        let now: u64 = self.pools.iter().map(|pool| pool.active().bytes.there()).sum();
        now.max(self.kept.active_bytes.all.peak)
    }

    /// The bytes of free blocks in segments of more than one, before the operation in progress.
    pub(crate) fn split_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.split.bytes.there()).sum()
    }

    /// A block was handed out.
    #[inline]
    pub(crate) fn allocated(&mut self, pool: Pool, bytes: u64, requested_bytes: u64) {
        self.rises = true;
        let counts = &mut self.pools[pool as usize];
        counts.allocated.come(bytes);
        counts.requested_bytes.added += requested_bytes;
    }

    /// The program holds it no more. What it is now, `begin_pending` or `is_inactive` says.
    #[inline]
    pub(crate) fn freed(&mut self, pool: Pool, bytes: u64) {
        if self.rises {
            self.note_peaks();
        }
        self.pools[pool as usize].allocated.go(bytes);
    }

    /// A freed block is not to be used again yet.
    pub(crate) fn begin_pending(&mut self, pool: Pool, bytes: u64) {
        self.pools[pool as usize].pending.come(bytes);
    }

    /// That is over; `is_inactive` says so too.
    pub(crate) fn end_pending(&mut self, pool: Pool, bytes: u64) {
        if self.rises {
            self.note_peaks();
        }
        self.pools[pool as usize].pending.go(bytes);
    }

    /// A block for which so much had been requested is no longer active.
    #[inline]
    pub(crate) fn is_inactive(&mut self, pool: Pool, requested_bytes: u64) {
        self.pools[pool as usize].requested_bytes.removed += requested_bytes;
    }

    /// A free block of a segment with several has come; it counts once the operation is over.
    #[inline]
    pub(crate) fn split_came(&mut self, bytes: u64) {
        self.change.blocks += 1;
        self.change.bytes += bytes as i64;
    }

    /// One has gone.
    #[inline]
    pub(crate) fn split_went(&mut self, bytes: u64) {
        self.change.blocks -= 1;
        self.change.bytes -= bytes as i64;
    }

    /// The operation is over, in this pool.
    pub(crate) fn settle_split(&mut self, pool: Pool) {
        let SplitChange { blocks, bytes } = core::mem::take(&mut self.change);
        self.split_changed(pool, blocks, bytes);
    }

    /// A whole operation changed the free blocks of segments with several by so many, and their
    /// bytes.
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

    /// As `split_changed`: a free block became smaller.
    #[inline(always)]
    pub(crate) fn split_shrank(&mut self, pool: Pool, bytes: u64) {
        if self.splits_rise {
            self.note_split_peaks();
        }
        self.pools[pool as usize].split.bytes.removed += bytes;
    }

    /// The same: one became larger.
    #[inline(always)]
    pub(crate) fn split_grew(&mut self, pool: Pool, bytes: u64) {
        self.pools[pool as usize].split.bytes.added += bytes;
        self.splits_rise = true;
    }

    /// The same: one more is there.
    #[inline(always)]
    pub(crate) fn split_rose(&mut self, pool: Pool, bytes: u64) {
        self.pools[pool as usize].split.come(bytes);
        self.splits_rise = true;
    }

    /// Whether no operation is in progress. For `check()`.
    pub(crate) fn is_between_operations(&self) -> bool {
        self.change == SplitChange::default()
    }

    /// What is allocated or active is about to fall. See Note [Peaks].
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

    /// What is split is about to fall.
    #[inline(never)]
    fn note_split_peaks(&mut self) {
        self.splits_rise = false;
        let [.., split, split_bytes] = self.flows().map(|flows| flows.map(Flow::there));
        self.kept.inactive_split.reached(split);
        self.kept.inactive_split_bytes.reached(split_bytes);
    }

    /// Of both pools, in the order of `Stats::flowing`.
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

    /// Up or down, in one step.
    #[inline]
    fn change(&mut self, by: i64) {
        match by {
            0 => {}
            1.. => self.added += by as u64,
            _ => self.removed += by.unsigned_abs(),
        }
    }

    /// The totals since those that `stat` has, and the higher peak.
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
    /// Each came when it was allocated.
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

//! The statistics that PyTorch keeps, under its names (`torch.cuda.memory_stats`): each number for
//! both pools together and for each pool alone, with its peak and its totals.

use alloc::vec::Vec;

use crate::types::Pool;

/// One number over time. `current == allocated - freed` until the totals are reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    pub current: u64,
    pub peak: u64,
    /// Sum of all increases.
    pub allocated: u64,
    /// Sum of all decreases.
    pub freed: u64,
}

impl Stat {
    #[inline]
    pub(crate) fn increase(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    #[inline]
    pub(crate) fn decrease(&mut self, amount: u64) {
        debug_assert!(self.current >= amount, "{} is less than {amount}", self.current);
        self.current -= amount;
        self.freed += amount;
    }

    fn add(&mut self, other: &Stat) {
        self.current += other.current;
        self.peak += other.peak;
        self.allocated += other.allocated;
        self.freed += other.freed;
    }
}

/// One number for both pools together and for each alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStats {
    pub all: Stat,
    pub small: Stat,
    pub large: Stat,
}

impl PoolStats {
    #[inline]
    pub(crate) fn increase(&mut self, pool: Pool, amount: u64) {
        self.all.increase(amount);
        self.of(pool).increase(amount);
    }

    #[inline]
    pub(crate) fn decrease(&mut self, pool: Pool, amount: u64) {
        self.all.decrease(amount);
        self.of(pool).decrease(amount);
    }

    #[inline]
    fn of(&mut self, pool: Pool) -> &mut Stat {
        match pool {
            Pool::Small => &mut self.small,
            Pool::Large => &mut self.large,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Blocks held by the program.
    pub allocation: PoolStats,
    /// Segments.
    pub segment: PoolStats,
    /// Blocks held by the program or pending free.
    pub active: PoolStats,
    /// Free blocks in segments of more than one block: they cannot be released by themselves.
    pub inactive_split: PoolStats,
    pub allocated_bytes: PoolStats,
    pub reserved_bytes: PoolStats,
    pub active_bytes: PoolStats,
    pub inactive_split_bytes: PoolStats,
    /// Freed blocks that are never reused, because other processes may have mapped them.
    pub retired_bytes: PoolStats,
    /// Requested bytes of the active blocks.
    pub requested_bytes: PoolStats,
    /// Blocks and segments at or above `max_split_bytes`.
    pub oversize_allocations: Stat,
    pub oversize_segments: Stat,
    /// Requests for which every free segment had to be released.
    pub num_alloc_retries: u64,
    /// Requests that ended in `Step::OutOfMemory`.
    pub num_ooms: u64,
    /// How often everything free was released, including memory that still waited for work.
    pub num_sync_all_streams: u64,
    /// Segments, and memory in arenas, that the driver provided. The field below counts those
    /// released.
    pub num_device_alloc: u64,
    pub num_device_free: u64,
    /// Requests refused although the driver was not asked.
    pub num_oom_rejections: u64,
    /// A copy of the policy's value, for display.
    pub max_split_bytes: Option<u64>,
}

impl Stats {
    /// Resets every peak to the current value.
    pub(crate) fn reset_peaks(&mut self) {
        self.for_each_stat(|stat| stat.peak = stat.current);
    }

    /// Resets every total and counter.
    pub(crate) fn reset_totals(&mut self) {
        self.for_each_stat(|stat| (stat.allocated, stat.freed) = (0, 0));
        self.counters().into_iter().for_each(|counter| *counter = 0);
    }

    /// Records that the context is gone, and everything with it.
    pub fn end(&mut self) {
        self.num_device_free += self.segment.all.current;
        self.for_each_stat(|stat| stat.decrease(stat.current));
    }

    /// Adds the statistics of another context. The peaks may have been at different times, so their
    /// sum is an upper bound of the peak.
    pub fn add(&mut self, other: &Stats) {
        let mut other = other.clone();
        for (pooled, more) in self.pooled().into_iter().zip(other.pooled()) {
            pooled.all.add(&more.all);
            pooled.small.add(&more.small);
            pooled.large.add(&more.large);
        }
        for (single, more) in self.single().into_iter().zip(other.single()) {
            single.add(more);
        }
        for (counter, more) in self.counters().into_iter().zip(other.counters()) {
            *counter += *more;
        }
        self.max_split_bytes = other.max_split_bytes;
    }

    /// Raises every peak to at least the other one's.
    pub fn raise_peaks(&mut self, other: &Stats) {
        self.with_peaks(other, u64::max);
    }

    /// Replaces every peak by the other one's.
    pub fn take_peaks(&mut self, other: &Stats) {
        self.with_peaks(other, |_, other| other);
    }

    fn with_peaks(&mut self, other: &Stats, choose: fn(u64, u64) -> u64) {
        let mut other = other.clone();
        let mut peaks = Vec::new();
        other.for_each_stat(|stat| peaks.push(stat.peak));
        let mut peaks = peaks.into_iter();
        self.for_each_stat(|stat| {
            stat.peak = peaks.next().map_or(stat.peak, |peak| choose(stat.peak, peak));
        });
    }

    fn for_each_stat(&mut self, mut change: impl FnMut(&mut Stat)) {
        for pooled in self.pooled() {
            change(&mut pooled.all);
            change(&mut pooled.small);
            change(&mut pooled.large);
        }
        self.single().into_iter().for_each(change);
    }

    /// Returns the statistics that change with every request and free, and are counted in `Counts`.
    pub(crate) fn flowing(&mut self) -> [&mut PoolStats; 7] {
        [
            &mut self.allocation,
            &mut self.active,
            &mut self.allocated_bytes,
            &mut self.active_bytes,
            &mut self.requested_bytes,
            &mut self.inactive_split,
            &mut self.inactive_split_bytes,
        ]
    }

    fn pooled(&mut self) -> [&mut PoolStats; 10] {
        [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.retired_bytes,
            &mut self.requested_bytes,
        ]
    }

    fn single(&mut self) -> [&mut Stat; 2] {
        [&mut self.oversize_allocations, &mut self.oversize_segments]
    }

    fn counters(&mut self) -> [&mut u64; 6] {
        [
            &mut self.num_alloc_retries,
            &mut self.num_ooms,
            &mut self.num_sync_all_streams,
            &mut self.num_device_alloc,
            &mut self.num_device_free,
            &mut self.num_oom_rejections,
        ]
    }
}

//! The statistics that PyTorch keeps, under its names (`torch.cuda.memory_stats`): each number for
//! both pools together and for each pool alone, with its peak and its totals.

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
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    #[inline]
    pub(crate) fn decrease(&mut self, amount: u64) {
        debug_assert!(self.current >= amount, "{} is less than {amount}", self.current);
        self.current -= amount;
        self.freed += amount;
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
    /// Freed blocks that nobody gets again, because other processes may have mapped them.
    pub retired_bytes: PoolStats,
    /// What the program asked for, of the active blocks.
    pub requested_bytes: PoolStats,
    /// Blocks and segments at or above `max_split_bytes`.
    pub oversize_allocations: Stat,
    pub oversize_segments: Stat,
    /// Requests for which every free segment had to be released.
    pub num_alloc_retries: u64,
    /// Requests that ended in `Step::OutOfMemory`.
    pub num_ooms: u64,
}

impl Stats {
    /// Every peak becomes the current value.
    pub fn reset_peaks(&mut self) {
        self.for_each_stat(|stat| stat.peak = stat.current);
    }

    /// Every total and counter begins anew.
    pub fn reset_totals(&mut self) {
        self.for_each_stat(|stat| (stat.allocated, stat.freed) = (0, 0));
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
    }

    fn for_each_stat(&mut self, mut change: impl FnMut(&mut Stat)) {
        let pools = [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ];
        for pool in pools {
            change(&mut pool.all);
            change(&mut pool.small);
            change(&mut pool.large);
        }
        change(&mut self.oversize_allocations);
        change(&mut self.oversize_segments);
    }
}

//! Counts that thread caches add to the statistics: the core counts a cached block as allocated all
//! the time.

use cachealloc_core::Pool;

use crate::config;

/// Counts of what passed through a list. A hit adds to the first and the last: side by side they
/// would be added as a vector, which takes longer.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Passes {
    pub(super) hits: u64,
    pub(super) requested_put: u64,
    pub(super) requested_taken: u64,
}

/// Counts that the core does not have, because it counts a cached block as allocated all the time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub small: PoolTally,
    pub large: PoolTally,
    pub oversize_hits: u64,
    pub oversize_cached: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct PoolTally {
    pub hits: u64,
    /// Bytes of these blocks, followed by their requested bytes.
    pub hit_bytes: u64,
    pub requested_taken: u64,
    /// Bytes that had been requested of the blocks that entered a list.
    pub requested_put: u64,
    pub cached: u64,
    pub cached_bytes: u64,
}

impl Tally {
    /// Hits of all sizes.
    pub(crate) fn hits(&self) -> u64 {
        self.small.hits + self.large.hits
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.small.add(&other.small);
        self.large.add(&other.large);
        self.oversize_hits += other.oversize_hits;
        self.oversize_cached += other.oversize_cached;
    }

    /// Adds what passed through a list of blocks of this size, and what is in it.
    pub(super) fn add_passes(&mut self, bytes: u64, passes: &Passes, cached: u64) {
        let policy = &config::get().policy;
        let more = PoolTally {
            hits: passes.hits,
            hit_bytes: passes.hits * bytes,
            requested_taken: passes.requested_taken,
            requested_put: passes.requested_put,
            cached,
            cached_bytes: cached * bytes,
        };
        match policy.pool_of(bytes) {
            Pool::Small => self.small.add(&more),
            Pool::Large => self.large.add(&more),
        }
        if policy.is_oversize(bytes) {
            self.oversize_hits += passes.hits;
            self.oversize_cached += cached;
        }
    }
}

impl PoolTally {
    fn add(&mut self, other: &PoolTally) {
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.requested_taken += other.requested_taken;
        self.requested_put += other.requested_put;
        self.cached += other.cached;
        self.cached_bytes += other.cached_bytes;
    }
}

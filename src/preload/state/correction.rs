//! What every context counts in addition to the core.

use std::sync::atomic::{AtomicI64, Ordering};

use cachealloc_core::{Allocator, BlockId, Pool};

/// Requested bytes of blocks that left thread caches: the core's count minus the program's. The
/// core knows only the first request of a block that went through a thread cache. Changed under the
/// allocator's lock.
#[derive(Default)]
pub(crate) struct ThreadCacheCorrection {
    pub small: Requested,
    pub large: Requested,
}

#[derive(Default)]
pub(crate) struct Requested {
    /// Bytes to subtract from what the program freed.
    pub not_freed: AtomicI64,
    /// Bytes to add to what is requested now: the remainder when the totals were reset.
    pub before: AtomicI64,
}

impl ThreadCacheCorrection {
    /// Notes that the core is about to free a block from a thread cache.
    pub(crate) fn left_list(&self, allocator: &Allocator, block: BlockId) {
        let (pool, known_bytes) = allocator.requested(block);
        add(&self.of(pool).not_freed, known_bytes as i64);
    }

    /// Notes that the core is about to free a block that the program held with this many requested
    /// bytes.
    #[inline]
    pub(crate) fn passed_by(&self, allocator: &Allocator, block: BlockId, requested_bytes: u64) {
        let (pool, known_bytes) = allocator.requested(block);
        self.passed(pool, known_bytes, requested_bytes);
    }

    /// Notes the free of a block for which the core knows `known_bytes`.
    #[inline]
    pub(crate) fn passed(&self, pool: Pool, known_bytes: u64, requested_bytes: u64) {
        if known_bytes != requested_bytes {
            add(&self.of(pool).not_freed, known_bytes as i64 - requested_bytes as i64);
        }
    }

    pub(crate) fn of(&self, pool: Pool) -> &Requested {
        match pool {
            Pool::Small => &self.small,
            Pool::Large => &self.large,
        }
    }
}

pub(crate) fn add(number: &AtomicI64, amount: i64) {
    let sum = number.load(Ordering::Relaxed).wrapping_add(amount);
    number.store(sum, Ordering::Relaxed);
}

//! Decides after which hits the lists of all threads are read for a new peak of the memory the
//! program holds.
//!
//! A sample reads a cache line of each other thread, which that thread writes in each of its calls.
//! While more blocks exist than the program has ever held at once, each hit may be a new peak: with
//! sixteen threads that have a block each, nearly all hits.

use cachealloc_core::policy::BLOCK_BYTES_MIN;

use crate::state::thread::Thread;
use crate::state::thread_cache::ThreadCache;

/// Number of hits in a row that sample while the peak stays the same, however many threads take
/// turns. Afterwards the intervals double.
const SAMPLES_MIN: u16 = 64;
/// Hit after which the intervals no longer double. The last interval is one less than a half of it,
/// an odd number, so that a program's loop does not miss the same hits each time.
const HITS_MAX: u16 = 1024;

/// Samples of a list while the peak stays the same.
#[derive(Default)]
#[repr(C, packed)]
pub(super) struct Looks {
    /// Low bits of the peak, in units.
    peak: u32,
    /// Most units that the program could have held at a hit that sampled: the core's count less
    /// what this thread has cached.
    most: u32,
    hits: u16,
}

impl Looks {
    /// Returns whether to sample after a hit that left `cached` units in the thread's lists, where
    /// the core counts `counted` as allocated. While no other thread allocates, nothing is missed:
    /// the program holds more only if the lists hand out more, or if the core has counted it.
    fn is_due(&mut self, counted: u32, cached: u32, peak: u32) -> bool {
        if self.peak != peak {
            *self = Looks { peak, most: 0, hits: 0 };
        }
        // The lists of other threads can only make it less.
        let held = counted.saturating_sub(cached);
        if held <= peak {
            return false;
        }
        let is_due = self.hits < SAMPLES_MIN || self.hits.is_power_of_two() || held > self.most;
        if is_due {
            self.most = held.max(self.most);
        }
        self.hits = if self.hits == HITS_MAX { HITS_MAX / 2 + 2 } else { self.hits + 1 };
        is_due
    }
}

impl ThreadCache {
    /// Returns whether to sample (`cached_bytes`) after this thread's hit. `counted_bytes` is what
    /// the core counts as allocated, `peak_bytes` the most that the program has held.
    pub(crate) fn sample_is_due(
        &self,
        thread: &Thread,
        counted_bytes: u64,
        peak_bytes: u64,
    ) -> bool {
        let shard = self.shard(thread);
        let units = |bytes: u64| (bytes / BLOCK_BYTES_MIN) as u32;
        let (cached, counted, peak) =
            (units(shard.cached_bytes()), units(counted_bytes), units(peak_bytes));
        shard.try_own().is_none_or(|mut list| list.looks.is_due(counted, cached, peak))
    }
}

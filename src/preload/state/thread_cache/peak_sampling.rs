//! Decides after which hits the lists of all threads are read for a new peak of the memory the
//! program holds.
//!
//! A sample reads a cache line of each other thread, which that thread writes in each of its calls.
//! While more blocks exist than the program has ever held at once, each hit may be a new peak: with
//! sixteen threads that have a block each, nearly all hits.

use cachealloc_core::policy::BLOCK_BYTES_MIN;

use crate::state::thread::Thread;
use crate::state::thread_cache::ThreadCache;

/// Number of hits in a row that sample, however many threads take turns.
const LOOKS_MIN: u8 = 64;
/// Afterwards one hit in this many samples. The number is odd, so that a program's loop does not
/// miss the same hits each time.
const HITS_PER_SAMPLE: u8 = 17;

/// Samples of a list while the core's count stays the same.
#[derive(Default)]
#[repr(C, packed)]
pub(super) struct Looks {
    /// Low bits of the core's count of allocated units.
    counted: u32,
    hits: u8,
    /// Fewest units that the thread had cached at a hit that sampled.
    fewest: u32,
}

impl Looks {
    /// Returns whether to sample after a hit that left this many units in the thread's lists. While
    /// no other thread allocates, nothing is missed: the program holds more only if the lists hand
    /// out more, or if the core has counted it.
    fn is_due(&mut self, counted: u32, cached: u32) -> bool {
        if self.counted != counted {
            *self = Looks { counted, hits: 0, fewest: u32::MAX };
        }
        let is_due = self.hits < LOOKS_MIN || cached < self.fewest;
        if is_due {
            self.fewest = cached.min(self.fewest);
        }
        self.hits += 1;
        if self.hits == LOOKS_MIN + HITS_PER_SAMPLE - 1 {
            self.hits = LOOKS_MIN - 1;
        }
        is_due
    }
}

impl ThreadCache {
    /// Returns whether to sample (`cached_bytes`) after this thread's hit. `counted_bytes` is what
    /// the core counts as allocated.
    pub(crate) fn sample_is_due(&self, thread: &Thread, counted_bytes: u64) -> bool {
        let shard = self.shard(thread);
        let cached = (shard.cached_bytes() / BLOCK_BYTES_MIN) as u32;
        let counted = (counted_bytes / BLOCK_BYTES_MIN) as u32;
        shard.try_own().is_none_or(|mut list| list.looks.is_due(counted, cached))
    }
}

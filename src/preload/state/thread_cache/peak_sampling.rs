//! After which hits the lists of all threads are looked at for a new peak of what the program holds.
//!
//! A look reads a cache line of each other thread, which that thread writes in each of its calls. While more blocks exist than
//! the program has ever held at once, each hit may be a new peak: of sixteen threads with a block each, as good as all hits.

use cachealloc_core::policy::BLOCK_BYTES_MIN;

use crate::state::thread::Thread;
use crate::state::thread_cache::ThreadCache;

/// So many hits in a row look, however many threads take turns.
const LOOKS_MIN: u8 = 64;
/// Then one in so many: odd, so that a program's loop does not miss the same of its hits each time.
const HITS_PER_SAMPLE: u8 = 17;

/// A list's looks while the core counts as much.
#[derive(Default)]
#[repr(C, packed)]
pub(super) struct Looks {
    /// What the core counts as allocated, in units, and of these the low bits.
    counted: u32,
    hits: u8,
    /// The fewest units that the thread had cached at a hit that looked.
    fewest: u32,
}

impl Looks {
    /// Whether to look after a hit that left so many units in the thread's lists. While no other thread allocates, nothing is
    /// missed: the program holds more only if the lists give more, or if the core has counted it.
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
    /// Whether to look (`cached_bytes`) after this thread's hit. `counted_bytes`: what the core counts as allocated.
    pub(crate) fn sample_is_due(&self, thread: &Thread, counted_bytes: u64) -> bool {
        let shard = self.shard(thread);
        let cached = (shard.cached_bytes() / BLOCK_BYTES_MIN) as u32;
        let counted = (counted_bytes / BLOCK_BYTES_MIN) as u32;
        shard.try_own().is_none_or(|mut list| list.looks.is_due(counted, cached))
    }
}

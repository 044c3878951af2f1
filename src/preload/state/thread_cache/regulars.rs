//! Sizes that a thread requests repeatedly, among others: a few blocks of each, so that several
//! threads with several sizes do not share the core's lock.
//!
//! A size is regular once the thread has requested it several times within a window of requests.
//! The blocks are not too large, and limited together by the thread's budget, which is its part of
//! the budget of all threads. They return to the core with those of all lists, but not before each
//! miss (`note_miss`). An allocation that
//! finds none here does not empty the others: PyTorch's choice matters where blocks are large.

use core::array::from_fn;

use cachealloc_core::policy::BLOCK_BYTES_MIN;

use crate::state::thread_cache::CachedBlock;
use crate::state::thread_cache::shard::ListedBlock;
use crate::state::thread_cache::tally::{Passes, Tally};

/// Size above which blocks are not kept here.
pub(super) const REGULAR_BYTES_MAX: u64 = 1 << 20;
/// Requests of a size within a window that make it regular.
const REQUESTS_MIN: u8 = 8;
/// Number of misses of a thread, each soon after the one before, from which the cache grows rather
/// than take the blocks of regular sizes back: it has less memory than these sizes need together,
/// so each would soon be missing again.
const MISSES_MIN: u8 = 8;
/// Length of a window, in requests of the thread of all sizes.
const WINDOW: u32 = 1024;
/// Number of sizes that are counted, and kept if they are regular, each in one of the places of its
/// set.
const SIZES: usize = 128;
const SIZES_PER_SET: usize = 8;
const CACHED_PER_SIZE_MAX: usize = 4;
/// Most cached blocks of all sizes together.
pub(super) const CACHED_MAX: usize = SIZES * CACHED_PER_SIZE_MAX;
/// Number of changes of the requested size before a thread gets this.
pub(super) const CHANGES_MIN: u8 = 32;

/// The sizes of a thread in one context. Zeros have none.
pub(super) struct Regulars {
    /// Requests so far.
    requests: u32,
    /// Request at which the core last had no memory.
    missed_at: u32,
    /// Number of such requests in a row that followed one another within a window.
    misses: u8,
    /// Sizes in units; 0 where there is none.
    units: [u32; SIZES],
    sizes: [Regular; SIZES],
}

/// A size that is requested repeatedly.
#[derive(Clone, Copy, Default)]
#[repr(align(128))]
struct Regular {
    /// Request at which its window began.
    since: u32,
    /// Requests of it since then.
    requests: u8,
    is_regular: bool,
    cached_count: u8,
    /// Hits when its use was last checked.
    hits_seen: u32,
    passes: Passes,
    cached: [ListedBlock; CACHED_PER_SIZE_MAX],
}

const _: () = assert!(size_of::<Regular>() == 128);

impl Regulars {
    pub(super) fn new() -> Box<Regulars> {
        // Not by way of the thread's stack, which may be small.
        // SAFETY: zeros are numbers, no blocks, and false.
        unsafe { Box::<Regulars>::new_zeroed().assume_init() }
    }

    /// Notes a request for a block of this size, and returns a block if there is one. `past`
    /// receives the counts of a size that is dropped.
    #[inline]
    pub(super) fn take(
        &mut self,
        bytes: u64,
        requested_bytes: u64,
        past: &mut Option<Box<Tally>>,
    ) -> Option<CachedBlock> {
        self.requests = self.requests.wrapping_add(1);
        let now = self.requests;
        let index = self.place(bytes).or_else(|| self.make_place(bytes, past))?;
        let size = &mut self.sizes[index];
        size.note_request(now);
        let left = size.cached_count.checked_sub(1)?;
        size.cached_count = left;
        size.passes.hits += 1;
        size.passes.requested_taken += requested_bytes;
        size.cached[left as usize % CACHED_PER_SIZE_MAX].of_size(bytes)
    }

    /// Returns the place where this size is counted.
    #[inline]
    fn place(&self, bytes: u64) -> Option<usize> {
        let (set, units) = (set(bytes), units(bytes));
        let of_set: [u32; SIZES_PER_SET] = from_fn(|index| self.units[set + index]);
        of_set.iter().position(|it| *it == units).map(|index| set + index)
    }

    /// Returns a place for a size that is counted from now on, if one is free, or if its size was
    /// not requested recently.
    #[cold]
    fn make_place(&mut self, bytes: u64, past: &mut Option<Box<Tally>>) -> Option<usize> {
        let (set, now) = (set(bytes), self.requests);
        let gives_way = |index: &usize| {
            let size = &self.sizes[*index];
            let is_old = now.wrapping_sub(size.since) >= 2 * WINDOW;
            self.units[*index] == 0 || size.cached_count == 0 && is_old
        };
        let index = (set..set + SIZES_PER_SET).find(gives_way)?;
        self.end_size(index, past);
        self.units[index] = units(bytes);
        self.sizes[index] = Regular { since: now, ..Regular::default() };
        Some(index)
    }

    /// Notes that the core had no memory for a request, and returns whether the blocks should stay.
    pub(super) fn note_miss(&mut self) -> bool {
        let passed = self.requests.wrapping_sub(self.missed_at);
        self.missed_at = self.requests;
        self.misses = if passed < WINDOW { self.misses.saturating_add(1) } else { 0 };
        self.misses >= MISSES_MIN
    }

    fn end_size(&mut self, index: usize, past: &mut Option<Box<Tally>>) {
        let passes = core::mem::take(&mut self.sizes[index].passes);
        if let Some(past) = past {
            past.add_passes(bytes(self.units[index]), &passes, 0);
        }
    }

    /// Returns the list of this size, if it is regular and has a place for a block.
    #[inline]
    pub(super) fn slot_for(&mut self, bytes: u64) -> Option<RegularSlot<'_>> {
        let index = self.place(bytes)?;
        let size = &mut self.sizes[index];
        let has_room = size.is_regular && (size.cached_count as usize) < CACHED_PER_SIZE_MAX;
        has_room.then_some(RegularSlot(size))
    }

    /// Takes out the blocks of the sizes that `is_one` selects, as many as fit into `out`, and
    /// returns their bytes.
    fn sweep(&mut self, is_one: impl Fn(&mut Regular) -> bool, out: &mut Vec<CachedBlock>) -> u64 {
        let mut swept_bytes = 0;
        for (units, size) in self.units.iter().zip(&mut self.sizes) {
            let (bytes, count) = (bytes(*units), size.cached_count as usize);
            if count == 0 || !is_one(size) || out.capacity() - out.len() < count {
                continue;
            }
            size.cached_count = 0;
            swept_bytes += bytes * count as u64;
            out.extend(size.cached[..count].iter().filter_map(|it| it.of_size(bytes)));
        }
        swept_bytes
    }

    /// Takes out the blocks of all sizes.
    pub(super) fn sweep_all(&mut self, out: &mut Vec<CachedBlock>) -> u64 {
        self.sweep(|_| true, out)
    }

    /// Takes out the blocks of sizes that have served no request since the last call.
    pub(super) fn sweep_unused(&mut self, out: &mut Vec<CachedBlock>) -> u64 {
        let is_unused = |size: &mut Regular| {
            let hits = size.passes.hits as u32;
            core::mem::replace(&mut size.hits_seen, hits) == hits
        };
        self.sweep(is_unused, out)
    }

    /// Restarts the counts. Cached blocks stay.
    pub(super) fn end_sizes(&mut self, past: &mut Option<Box<Tally>>) {
        (0..SIZES).for_each(|index| self.end_size(index, past));
    }

    pub(super) fn add_to(&self, tally: &mut Tally) {
        for (units, size) in self.units.iter().zip(&self.sizes) {
            if *units != 0 {
                tally.add_passes(bytes(*units), &size.passes, size.cached_count.into());
            }
        }
    }

    pub(super) fn hits(&self) -> u64 {
        self.sizes.iter().map(|size| size.passes.hits).sum()
    }
}

impl Regular {
    #[inline]
    fn note_request(&mut self, now: u32) {
        let passed = now.wrapping_sub(self.since);
        if passed >= WINDOW {
            self.is_regular &= self.requests >= REQUESTS_MIN && passed < 2 * WINDOW;
            (self.since, self.requests) = (now, 0);
        }
        self.requests = self.requests.saturating_add(1);
        self.is_regular |= self.requests >= REQUESTS_MIN;
    }
}

/// A regular size with a place for a block.
pub(super) struct RegularSlot<'a>(&'a mut Regular);

impl RegularSlot<'_> {
    pub(super) fn put(self, cached: CachedBlock, requested_bytes: u64) {
        let RegularSlot(size) = self;
        size.passes.requested_put += requested_bytes;
        size.cached[size.cached_count as usize] = cached.listed();
        size.cached_count += 1;
    }
}

#[inline]
fn units(bytes: u64) -> u32 {
    (bytes / BLOCK_BYTES_MIN) as u32
}

fn bytes(units: u32) -> u64 {
    u64::from(units) * BLOCK_BYTES_MIN
}

/// Returns the first place of the set of a size.
#[inline]
fn set(bytes: u64) -> usize {
    const SETS: usize = SIZES / SIZES_PER_SET;
    let spread = units(bytes).wrapping_mul(0x9e37_79b9) >> (u32::BITS - SETS.ilog2());
    spread as usize * SIZES_PER_SET
}

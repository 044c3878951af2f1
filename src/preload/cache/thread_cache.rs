//! A few recently freed blocks per thread, kept for the next allocation of the same size: `cudaMalloc`
//! and `cudaFree` in a loop take no shared lock.
//!
//! A cached block is free for any request (its barrier was made); the core still counts it as allocated.
//! A cached block does not merge with its neighbours, and taking it is not always the choice that the
//! core would make; both cost memory (0.5 % on real traces). So a block is cached only once a thread has
//! requested the same size several times in a row, and a list does not outlive its use: an allocation
//! that finds nothing in its list returns the list to the core first, which then chooses as if there
//! were no list. Lists belong to shards, not to threads, so that any thread can empty all of them:
//! before the cache grows, before memory goes back, and under pressure. A busy shard is skipped, never
//! waited for, except to empty it or to read its statistics.
//!
//! The blocks of one list have one size, so a hit counts itself and its requested bytes, and nothing
//! else; the bytes are computed when the size changes, or on request.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_core::BlockId;

use crate::config;
use crate::process::own_thread;
use crate::process::patience::Patience;
use crate::process::thread::Thread;

mod tally;

use tally::Passes;
pub(crate) use tally::{PoolTally, Tally};

const SHARDS: usize = 32;
const CACHED_PER_SHARD_MAX: usize = 8;
/// Requests of one size in a row before blocks of that size are cached.
const STREAK_MIN: u32 = 8;
/// About the time that a descheduled owner needs to come back.
const PAUSE: Duration = Duration::from_micros(1);
/// Where waiting is forbidden: the owner needs a shard for some nanoseconds, or was interrupted.
const TRIES_MAX: u32 = 1000;

/// A block in a list.
#[derive(Clone, Copy, Default)]
pub(crate) struct CachedBlock {
    pub address: u64,
    pub bytes: u64,
    pub block: u32,
}

/// How often each list had served at some moment.
#[derive(Default)]
pub(crate) struct ListsSeen([u64; SHARDS]);

/// The lists of one context, on pages of their own: `context_ended` returns them. Zeros are empty lists.
#[repr(align(4096))]
pub(crate) struct ThreadCache {
    shards: [Shard; SHARDS],
}

/// Two cache lines each, so that neighbours do not disturb each other.
#[repr(align(128))]
struct Shard {
    busy: AtomicBool,
    /// Written only while the shard is owned; readers may see an older value.
    cached_count: AtomicU32,
    /// The size of the last requests, and of every cached block.
    wanted_bytes: AtomicU64,
    list: UnsafeCell<List>,
}

struct List {
    cached: [ListedBlock; CACHED_PER_SHARD_MAX],
    /// How many requests in a row had the wanted size.
    streak: u32,
    /// Of the wanted size, and of all sizes before it.
    present: Passes,
    /// None once the context is gone.
    past: Option<Box<Tally>>,
}

/// A cached block; its size is the list's.
#[derive(Clone, Copy, Default)]
struct ListedBlock {
    address: u64,
    block: u32,
}

impl List {
    /// The next blocks have another size.
    fn end_size(&mut self, bytes: u64) {
        let passes = core::mem::take(&mut self.present);
        if let Some(past) = &mut self.past {
            past.add_passes(bytes, &passes, 0);
        }
    }

    fn past_hits(&self) -> u64 {
        self.past.as_ref().map_or(0, |past| past.hits())
    }
}

impl ListedBlock {
    fn of_size(self, bytes: u64) -> CachedBlock {
        CachedBlock { address: self.address, bytes, block: self.block }
    }
}

const _: () = assert!(size_of::<Shard>() == 256);

// SAFETY: `list` is touched only by the thread that set `busy`.
unsafe impl Sync for Shard {}

impl ThreadCache {
    /// Of zeros.
    pub(crate) fn begin(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.list.get_mut().past = Some(Box::default()));
    }

    /// A cached block of exactly this size, if this thread's list has one, for a request of
    /// `requested_bytes`.
    #[inline]
    pub(crate) fn take(
        &self,
        thread: &Thread,
        bytes: u64,
        requested_bytes: u64,
    ) -> Option<CachedBlock> {
        let shard = self.shard(thread);
        shard.try_with(|list| {
            let count = shard.cached_count.load(Ordering::Relaxed);
            if count == 0 || shard.wanted_bytes.load(Ordering::Relaxed) != bytes {
                shard.note_request(list, bytes);
                return None;
            }
            shard.cached_count.store(count - 1, Ordering::Release);
            list.present.hits += 1;
            list.present.requested_taken += requested_bytes;
            Some(list.cached[(count as usize - 1) % CACHED_PER_SHARD_MAX].of_size(bytes))
        })?
    }

    /// Caches a block of the size that this thread requests repeatedly. `Err` returns what must go to
    /// the core instead: this block, or the oldest one of a full list.
    #[inline]
    pub(crate) fn put(
        &self,
        thread: &Thread,
        cached: CachedBlock,
        requested_bytes: u64,
    ) -> Result<(), CachedBlock> {
        let shard = self.shard(thread);
        shard
            .try_with(|list| {
                let wanted = shard.wanted_bytes.load(Ordering::Relaxed);
                if wanted != cached.bytes || list.streak < STREAK_MIN {
                    return Err(cached);
                }
                list.present.requested_put += requested_bytes;
                let count = shard.cached_count.load(Ordering::Relaxed) as usize;
                let place = ListedBlock { address: cached.address, block: cached.block };
                if count < CACHED_PER_SHARD_MAX {
                    list.cached[count] = place;
                    shard.cached_count.store(count as u32 + 1, Ordering::Release);
                    return Ok(());
                }
                let oldest = list.cached[0];
                list.cached.copy_within(1.., 0);
                list.cached[CACHED_PER_SHARD_MAX - 1] = place;
                Err(oldest.of_size(wanted))
            })
            .unwrap_or(Err(cached))
    }

    /// Takes out every cached block.
    pub(crate) fn empty(&self, mut each: impl FnMut(CachedBlock)) {
        self.shards.iter().for_each(|shard| shard.empty(&mut each));
    }

    /// Takes out the blocks of lists that have served no request since the last call with `seen`.
    pub(crate) fn empty_unused(&self, seen: &mut ListsSeen, mut each: impl FnMut(CachedBlock)) {
        for (shard, seen) in self.shards.iter().zip(&mut seen.0) {
            let hits = shard.with(|list| list.past_hits() + list.present.hits);
            if core::mem::replace(seen, hits) == hits {
                shard.empty(&mut each);
            }
        }
    }

    /// Takes out the blocks of this thread's list.
    #[inline]
    pub(crate) fn empty_own(&self, thread: &Thread, mut each: impl FnMut(CachedBlock)) {
        self.shard(thread).empty(&mut each);
    }

    /// Bytes in all lists: allocated to the core, free to the program.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.shards.iter().map(Shard::cached_bytes).sum()
    }

    /// What the core does not know, except for a shard whose owner was stopped. Call under the
    /// allocator's lock.
    pub(crate) fn tally(&self, patience: Patience) -> Tally {
        let mut tally = Tally::default();
        self.shards.iter().for_each(|shard| shard.add_to(&mut tally, patience));
        tally
    }

    /// Takes out every cached block, adds what was counted to `tally`, and restarts the counts. Call
    /// under the allocator's lock.
    pub(crate) fn start_anew(&self, tally: &mut Tally, mut each: impl FnMut(CachedBlock)) {
        for shard in &self.shards {
            let mut cached = Vec::new();
            shard.with(|list| {
                let count = shard.cached_count.swap(0, Ordering::Relaxed);
                let bytes = shard.wanted_bytes.load(Ordering::Relaxed);
                cached
                    .extend(list.cached[..count as usize].iter().map(|place| place.of_size(bytes)));
                list.end_size(bytes);
                tally.add(&list.past.as_deref_mut().map(core::mem::take).unwrap_or_default());
            });
            cached.into_iter().for_each(&mut each);
        }
    }

    /// The context is gone, and its lists are empty: returns their pages. A concurrent access finds an
    /// empty list: all zeros are one.
    pub(crate) fn context_ended(&self) {
        self.shards.iter().for_each(|shard| shard.with(|list| list.past = None));
        // SAFETY: whole pages of our own, that hold nothing but this; zeros are valid for all of it.
        unsafe {
            let start = (&raw const *self).cast_mut().cast();
            libc::madvise(start, size_of::<ThreadCache>(), libc::MADV_DONTNEED);
        }
    }

    #[inline]
    fn shard(&self, thread: &Thread) -> &Shard {
        &self.shards[thread.number() % SHARDS]
    }
}

impl CachedBlock {
    pub(crate) fn id(&self) -> BlockId {
        BlockId(self.block)
    }
}

impl Shard {
    /// The list had no block for this request, and is about to be emptied. It changes its size only
    /// while empty, so that all its blocks have one size.
    #[inline]
    fn note_request(&self, list: &mut List, bytes: u64) {
        let wanted = self.wanted_bytes.load(Ordering::Relaxed);
        if bytes == wanted {
            // With red zones no block is cached: the requested size would differ from the core's.
            list.streak += u32::from(config::zone_bytes() == 0);
            return;
        }
        list.streak = 0;
        if self.cached_count.load(Ordering::Relaxed) == 0 {
            if list.present.requested_put != 0 {
                list.end_size(wanted);
            }
            self.wanted_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    fn cached_bytes(&self) -> u64 {
        let count = self.cached_count.load(Ordering::Acquire);
        u64::from(count) * self.wanted_bytes.load(Ordering::Relaxed)
    }

    fn add_to(&self, tally: &mut Tally, patience: Patience) {
        let mut add = |list: &mut List| {
            list.past.iter().for_each(|past| tally.add(past));
            let cached = self.cached_count.load(Ordering::Relaxed).into();
            tally.add_passes(self.wanted_bytes.load(Ordering::Relaxed), &list.present, cached);
        };
        let tries = match patience {
            Patience::Waits => return self.with(add),
            Patience::GivesUp => TRIES_MAX * TRIES_MAX,
            Patience::Never => TRIES_MAX,
        };
        for number in 1..=tries {
            if self.try_with(&mut add).is_some() {
                return;
            }
            pause(number);
        }
    }

    #[inline]
    fn try_with<T>(&self, body: impl FnOnce(&mut List) -> T) -> Option<T> {
        if self.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: `busy` was clear and is ours now; no other reference to the list exists.
        let result = body(unsafe { &mut *self.list.get() });
        self.busy.store(false, Ordering::Release);
        Some(result)
    }

    #[inline]
    fn empty(&self, each: &mut impl FnMut(CachedBlock)) {
        if self.cached_count.load(Ordering::Relaxed) != 0 {
            self.take_out(each);
        }
    }

    #[inline(never)]
    fn take_out(&self, each: &mut impl FnMut(CachedBlock)) {
        let mut taken = [ListedBlock::default(); CACHED_PER_SHARD_MAX];
        let (mut count, mut bytes) = (0, 0);
        self.with(|list| {
            taken = list.cached;
            count = self.cached_count.swap(0, Ordering::Relaxed) as usize;
            bytes = self.wanted_bytes.load(Ordering::Relaxed);
        });
        taken[..count].iter().for_each(|place| each(place.of_size(bytes)));
    }

    fn with<T>(&self, body: impl FnOnce(&mut List) -> T) -> T {
        let mut spins = 0_u32;
        while self.busy.swap(true, Ordering::Acquire) {
            spins += 1;
            pause(spins);
        }
        // SAFETY: as in `try_with`.
        let result = body(unsafe { &mut *self.list.get() });
        self.busy.store(false, Ordering::Release);
        result
    }
}

/// Pauses after so many tries.
fn pause(tries: u32) {
    // Asleep, not yielding: under a real-time policy a thread yields only to its equals, and the owner
    // may not be one.
    if tries.is_multiple_of(64) { own_thread::sleep(PAUSE) } else { spin_loop() }
}

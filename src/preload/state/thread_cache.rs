//! A few recently freed blocks per thread, kept for the next allocation of the same size:
//! `cudaMalloc` and `cudaFree` in a loop take no shared lock.
//!
//! A cached block is free for any request (its barrier was made); the core still counts it as
//! allocated. It does not merge with adjacent blocks, and taking it is not always the choice that
//! the core would make. Both cost memory (0.5 % on real traces). So a block is cached only once a
//! thread has requested the same size several times in a row, and a list does not outlive its use:
//! an allocation that finds nothing in its list returns the list to the core first, which then
//! chooses as if there were no list.
//!
//! A list belongs to a thread, by its seat (`process::seats`), from the first request that it
//! serves until the thread ends. It lies in a shard, so that any thread can empty all lists: before
//! the cache grows, before memory is released, and under pressure. A busy shard is skipped, never
//! waited for, except to empty it or to read its statistics. Threads without a seat share a shard.
//!
//! A thread keeps a few blocks of each size that it requests repeatedly among others (`regulars`).
//! They stay when its list is emptied, but not when all lists are, unless all these sizes together
//! need more memory than the cache has: then it grows by as much.
//!
//! The blocks of one list have one size, so a hit counts itself and its requested bytes, and
//! nothing else; the bytes are computed when the size changes, or on request.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use cachealloc_core::BlockId;

use crate::heap;
use crate::process::lock_timeout::LockWait;
use crate::process::seats::SHARED;
use crate::state::slot::Slot;
use crate::state::thread::Thread;

mod chunks;
mod peak_sampling;
mod regulars;
mod shard;
mod tally;

use chunks::{CHUNKS, Chunk};
use regulars::{CACHED_MAX, REGULAR_BYTES_MAX, Regulars};
use shard::{CACHED_PER_SHARD_MAX, List, ListedBlock, Shard};
pub(crate) use shard::{Noted, Owned};
pub(crate) use tally::{PoolTally, Tally};

/// Least growth of a thread's budget for its regular sizes.
const BUDGET_STEP_BYTES: u64 = 256 << 10;

/// A block in a list.
#[derive(Clone, Copy)]
pub(crate) struct CachedBlock {
    pub address: u64,
    pub bytes: u64,
    pub block: u32,
    pub slot: &'static Slot,
}

/// Result of offering a freed block to the list of a thread.
pub(crate) enum CacheInsert {
    Cached,
    /// The list keeps no blocks of this size.
    SizeDisabled,
    /// The list is full, busy, or not known yet.
    FullOrBusy,
}

/// Hits of each list at some moment.
#[derive(Default)]
pub(crate) struct ListsSeen(Vec<u64>);

/// The lists of one context, on separate pages, which `context_ended` returns. Zeros are empty
/// lists.
#[repr(align(4096))]
pub(crate) struct ThreadCache {
    first: Chunk,
    /// Null until a seat in it requests memory; never freed, as threads know where their shards
    /// are.
    more: [AtomicPtr<Chunk>; CHUNKS - 1],
    /// One past the last that is not null.
    more_end: AtomicUsize,
    /// Bytes that all threads together may keep for their regular sizes.
    budgeted_bytes: AtomicU64,
    /// Whether memory was scarce at the last miss: threads may keep less then.
    is_memory_scarce: AtomicBool,
}

impl ThreadCache {
    /// Initializes a cache of zeros.
    pub(crate) fn begin(&mut self) {
        self.first.begin();
    }

    /// Takes a cached block of exactly this size, for a request of `requested_bytes`. If this
    /// thread's list has none, returns the list, for which the caller must call `note_request`;
    /// `None` if the list is busy, or not known yet (`settle`).
    #[inline(always)]
    pub(crate) fn take(
        &self,
        thread: &Thread,
        bytes: u64,
        requested_bytes: u64,
    ) -> Result<CachedBlock, Option<Owned<'_>>> {
        let Some(shard) = self.known_shard(thread) else { return Err(None) };
        let Some(mut list) = shard.try_own() else { return Err(None) };
        let count = shard.cached_count.load(Ordering::Relaxed);
        if count == 0 || shard.wanted_bytes.load(Ordering::Relaxed) != bytes {
            return Err(Some(list));
        }
        // SAFETY: it never counts more blocks than there are places.
        let place = *unsafe { list.cached.get_unchecked(count as usize - 1) };
        let Some(cached) = place.of_size(bytes) else { return Err(None) };
        shard.cached_count.store(count - 1, Ordering::Release);
        list.present.hits += 1;
        list.present.requested_taken += requested_bytes;
        Ok(cached)
    }

    /// Caches a claimed block of the size that this thread requests repeatedly, if there is a place
    /// for it. `word` is the word of the slot when it was claimed.
    #[inline(always)]
    pub(crate) fn offer(
        &self,
        thread: &Thread,
        cached: CachedBlock,
        requested_bytes: u64,
        word: u64,
    ) -> CacheInsert {
        let Some(shard) = self.known_shard(thread) else { return CacheInsert::FullOrBusy };
        let Some(mut list) = shard.try_own() else { return CacheInsert::FullOrBusy };
        if shard.wanted_bytes.load(Ordering::Relaxed) != cached.bytes {
            return CacheInsert::SizeDisabled;
        }
        let count = shard.cached_count.load(Ordering::Relaxed);
        if count >= list.places_count {
            return match list.keeps_wanted() {
                true => CacheInsert::FullOrBusy,
                false => CacheInsert::SizeDisabled,
            };
        }
        cached.slot.mark_cached(word);
        list.present.requested_put += requested_bytes;
        // SAFETY: `places_count` is at most their number.
        *unsafe { list.cached.get_unchecked_mut(count as usize) } = cached.listed();
        shard.cached_count.store(count + 1, Ordering::Release);
        CacheInsert::Cached
    }

    /// Caches a block of the size that this thread requests repeatedly. Returns in `Err` the block
    /// that must go to the core instead: this block, or the oldest one of a full list.
    #[inline]
    pub(crate) fn put(
        &self,
        thread: &Thread,
        cached: CachedBlock,
        requested_bytes: u64,
    ) -> Result<(), CachedBlock> {
        let shard = self.shard(thread);
        let Some(mut list) = shard.try_own() else { return Err(cached) };
        let wanted = shard.wanted_bytes.load(Ordering::Relaxed);
        if wanted != cached.bytes || !list.keeps_wanted() {
            return Err(cached);
        }
        list.present.requested_put += requested_bytes;
        let count = shard.cached_count.load(Ordering::Relaxed) as usize;
        if count < CACHED_PER_SHARD_MAX {
            list.cached[count] = cached.listed();
            shard.cached_count.store(count as u32 + 1, Ordering::Release);
            return Ok(());
        }
        let oldest = list.cached[0];
        list.cached.copy_within(1.., 0);
        list.cached[CACHED_PER_SHARD_MAX - 1] = cached.listed();
        Err(oldest.of_size(wanted).expect("a full list has a block at each place"))
    }

    /// Takes out every cached block.
    pub(crate) fn empty(&self, mut each: impl FnMut(CachedBlock)) {
        self.shards().for_each(|shard| shard.empty(&self.budgeted_bytes, &mut each));
    }

    /// Takes out the cached blocks for a request of this size that the core has no memory for.
    /// Those of regular sizes may stay where memory is plentiful (`Regulars::note_miss`).
    pub(crate) fn empty_for_miss(
        &self,
        thread: &Thread,
        bytes: u64,
        is_plentiful: bool,
        mut each: impl FnMut(CachedBlock),
    ) {
        self.is_memory_scarce.store(!is_plentiful, Ordering::Relaxed);
        let note = |list: &mut List| list.regulars.as_mut().is_some_and(|own| own.note_miss());
        let may_stay = bytes <= REGULAR_BYTES_MAX && thread.seat() != SHARED;
        if may_stay && self.shard(thread).with(note) && is_plentiful {
            self.shards().for_each(|shard| shard.empty_list(&mut each));
        } else {
            self.empty(each);
        }
    }

    /// Takes out the blocks of lists that have served no request since the last call with `seen`.
    pub(crate) fn empty_unused(&self, seen: &mut ListsSeen, mut each: impl FnMut(CachedBlock)) {
        for (number, shard) in self.shards().enumerate() {
            if number == seen.0.len() {
                seen.0.push(0);
            }
            let seen = &mut seen.0[number];
            let hits = shard.with(|list| list.hits());
            if core::mem::replace(seen, hits) == hits {
                shard.empty(&self.budgeted_bytes, &mut each);
            } else if shard.regular_bytes.load(Ordering::Relaxed) != 0 {
                shard.empty_unused_regulars(&self.budgeted_bytes, &mut each);
            }
        }
    }

    /// Returns whether the thread may have blocks here, or places for them, that no other thread
    /// uses.
    pub(crate) fn has_own(&self, thread: &Thread) -> bool {
        thread.seat() != SHARED && self.shard(thread).has_begun()
    }

    /// Takes out the blocks of this thread's list, but not those of its regular sizes.
    #[inline]
    pub(crate) fn empty_own(&self, thread: &Thread, mut each: impl FnMut(CachedBlock)) {
        self.shard(thread).empty_list(&mut each);
    }

    /// Takes out everything that a thread has when it ends.
    pub(crate) fn leave(&self, thread: &Thread, mut each: impl FnMut(CachedBlock)) {
        let shard = self.shard(thread);
        shard.empty(&self.budgeted_bytes, &mut each);
        drop(shard.with(List::end_regulars));
    }

    /// Keeps a claimed block of a size that this thread requests repeatedly, if there is a place
    /// for it. `most_bytes` returns the bound for all threads together, given whether memory is
    /// scarce. `mark` notes that the block is cached.
    pub(crate) fn keep(
        &self,
        thread: &Thread,
        cached: CachedBlock,
        requested_bytes: u64,
        most_bytes: impl FnOnce(bool) -> u64,
        mark: impl FnOnce(),
    ) -> bool {
        if cached.bytes > REGULAR_BYTES_MAX {
            return false;
        }
        let shard = self.shard(thread);
        let Some(mut list) = shard.try_own() else { return false };
        let List { regulars, budget_bytes, .. } = &mut *list;
        let room = regulars.as_mut().and_then(|regulars| regulars.slot_for(cached.bytes));
        let Some(room) = room else { return false };
        let kept_bytes = shard.regular_bytes.load(Ordering::Relaxed) + cached.bytes;
        if kept_bytes > *budget_bytes && !self.widen(budget_bytes, cached.bytes, most_bytes) {
            return false;
        }
        mark();
        room.put(cached, requested_bytes);
        shard.regular_bytes.store(kept_bytes, Ordering::Release);
        true
    }

    /// Raises the budget of one thread, within that of all threads.
    #[cold]
    fn widen(
        &self,
        budget_bytes: &mut u64,
        bytes: u64,
        most_bytes: impl FnOnce(bool) -> u64,
    ) -> bool {
        let more_bytes = bytes.max(BUDGET_STEP_BYTES);
        let most_bytes = most_bytes(self.is_memory_scarce.load(Ordering::Relaxed));
        let wider = |all: u64| Some(all + more_bytes).filter(|all| *all <= most_bytes);
        let widened =
            self.budgeted_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, wider).is_ok();
        if widened {
            *budget_bytes += more_bytes;
        }
        widened
    }

    /// Begins to keep the sizes of this thread apart.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep_apart(&self, thread: &Thread) {
        if thread.seat() == SHARED {
            // Starts counting again, so that this is not called soon.
            return self.shard(thread).with(|list| list.changes = 0);
        }
        let new = Regulars::new();
        let spare = self.shard(thread).with(|list| match list.regulars {
            None if list.past.is_some() => list.regulars.replace(new),
            _ => Some(new),
        });
        drop(spare);
    }

    /// Bytes in all lists. The core counts them as allocated; the program has freed them.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.shards().map(Shard::cached_bytes).sum()
    }

    /// Returns the counts that the core does not have, except those of a shard whose owner was
    /// stopped. The caller must hold the allocator's lock.
    pub(crate) fn tally(&self, wait: LockWait) -> Tally {
        let mut tally = Tally::default();
        self.shards().for_each(|shard| shard.add_to(&mut tally, wait));
        tally
    }

    /// Takes out every cached block, adds the counts to `tally`, and restarts them. The caller must
    /// hold the allocator's lock.
    pub(crate) fn start_anew(&self, tally: &mut Tally, mut each: impl FnMut(CachedBlock)) {
        for shard in self.shards() {
            let mut cached = Vec::with_capacity(CACHED_PER_SHARD_MAX + CACHED_MAX);
            shard.with(|list| {
                let count = shard.cached_count.swap(0, Ordering::Relaxed);
                let bytes = shard.wanted_bytes.load(Ordering::Relaxed);
                let listed = list.cached[..count as usize].iter();
                cached.extend(listed.filter_map(|place| place.of_size(bytes)));
                list.end_size(bytes);
                shard.sweep_owned(list, &self.budgeted_bytes, Regulars::sweep_all, &mut cached);
                let List { regulars, past, .. } = list;
                regulars.iter_mut().for_each(|regulars| regulars.end_sizes(past));
                tally.add(&past.as_deref_mut().map(core::mem::take).unwrap_or_default());
            });
            cached.into_iter().for_each(&mut each);
        }
    }

    /// Returns the pages of the lists, which are empty: the context has ended. A concurrent access
    /// finds an empty list, since all zeros are one. Their addresses remain valid, because threads
    /// know them.
    pub(crate) fn context_ended(&self) {
        self.shards().for_each(|shard| {
            drop(shard.with(|list| (list.past.take(), list.regulars.take())));
        });
        if self.more_end.load(Ordering::Acquire) == 0 {
            // SAFETY: on pages that hold nothing else; zeros are valid for all of it.
            unsafe { heap::return_pages(self) };
        } else {
            // The addresses of the other chunks lie on a page of this one.
            // SAFETY: as above.
            self.chunks().for_each(|chunk| unsafe { heap::return_pages(chunk) });
        }
    }
}

impl CachedBlock {
    pub(crate) fn id(&self) -> BlockId {
        BlockId(self.block)
    }

    #[inline(always)]
    fn listed(self) -> ListedBlock {
        ListedBlock { address: self.address, slot: Some(self.slot), block: self.block }
    }
}

//! A few recently freed blocks per thread, kept for the next allocation of the same size: `cudaMalloc`
//! and `cudaFree` in a loop take no shared lock.
//!
//! A cached block is free for any request (its barrier was made); the core still counts it as allocated.
//! A cached block does not merge with its neighbours, and taking it is not always the choice that the
//! core would make; both cost memory (0.5 % on real traces). So a block is cached only once a thread has
//! requested the same size several times in a row, and a list does not outlive its use: an allocation
//! that finds nothing in its list returns the list to the core first, which then chooses as if there
//! were no list. A list belongs to a thread, by its seat (`process::seats`), from its first request on that it serves until the
//! thread ends; it lies in a shard, so that any thread can empty all of them: before the cache grows, before memory goes
//! back, and under pressure. A busy shard is skipped, never waited for, except to empty it or to read its statistics.
//! Threads without a seat share a shard.
//!
//! The blocks of one list have one size, so a hit counts itself and its requested bytes, and nothing
//! else; the bytes are computed when the size changes, or on request.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_core::BlockId;

use crate::pagemap::slot::Slot;
use crate::process::own_thread;
use crate::process::patience::Patience;
use crate::process::seats::{SEATS_COUNT, SHARED};
use crate::process::thread::Thread;
use crate::{config, heap};

mod looks;
mod tally;

use looks::Looks;
use tally::Passes;
pub(crate) use tally::{PoolTally, Tally};

/// Shards are made so many at a time, as seats ask for them.
const SHARDS_PER_CHUNK: usize = 16;
const CHUNKS: usize = SEATS_COUNT / SHARDS_PER_CHUNK;
const CACHED_PER_SHARD_MAX: usize = 8;
/// Requests of one size in a row before blocks of that size are cached.
const STREAK_MIN: u8 = 8;
/// About the time that a descheduled owner needs to come back.
const PAUSE: Duration = Duration::from_micros(1);
/// Where waiting is forbidden: the owner needs a shard for some nanoseconds, or was interrupted.
const TRIES_MAX: u32 = 1000;

/// A block in a list.
#[derive(Clone, Copy)]
pub(crate) struct CachedBlock {
    pub address: u64,
    pub bytes: u64,
    pub block: u32,
    pub slot: &'static Slot,
}

/// What a list says to a freed block.
pub(crate) enum Offered {
    Taken,
    /// It keeps none of this size.
    NotWanted,
    /// It is full, or busy.
    NotNow,
}

/// How often each list had served at some moment.
#[derive(Default)]
pub(crate) struct ListsSeen(Vec<u64>);

/// The lists of one context, on pages of their own: `context_ended` returns them. Zeros are empty lists.
#[repr(align(4096))]
pub(crate) struct ThreadCache {
    first: Chunk,
    /// Null until a seat in it asks; never freed, as threads know where their shards are.
    more: [AtomicPtr<Chunk>; CHUNKS - 1],
}

/// The shards of some seats. Zeros are empty lists.
#[repr(align(4096))]
struct Chunk([Shard; SHARDS_PER_CHUNK]);

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

pub(crate) struct List {
    cached: [ListedBlock; CACHED_PER_SHARD_MAX],
    /// The wanted size after enough requests of it in a row: blocks of this size are cached. 0 before.
    repeated_bytes: u64,
    /// How many requests in a row had the wanted size.
    streak: u8,
    looks: Looks,
    /// Of the wanted size, and of all sizes before it.
    present: Passes,
    /// None once the context is gone.
    past: Option<Box<Tally>>,
}

/// A cached block; its size is the list's.
#[derive(Clone, Copy, Default)]
struct ListedBlock {
    address: u64,
    /// None where there is no block.
    slot: Option<&'static Slot>,
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

    /// One more request in a row of this size.
    #[inline(never)]
    fn note_repeated(&mut self, bytes: u64) {
        // With red zones no block is cached: the requested size would differ from the core's.
        self.streak = self.streak.saturating_add(u8::from(config::zone_bytes() == 0));
        if self.streak >= STREAK_MIN {
            self.repeated_bytes = bytes;
        }
    }

    fn past_hits(&self) -> u64 {
        self.past.as_ref().map_or(0, |past| past.hits())
    }
}

impl ListedBlock {
    #[inline(always)]
    fn of_size(self, bytes: u64) -> Option<CachedBlock> {
        let ListedBlock { address, slot, block } = self;
        slot.map(|slot| CachedBlock { address, bytes, block, slot })
    }
}

const _: () = assert!(size_of::<Shard>() == 256 && size_of::<Chunk>() == 4096);

// SAFETY: `list` is touched only by the thread that set `busy`.
unsafe impl Sync for Shard {}

impl ThreadCache {
    /// Of zeros.
    pub(crate) fn begin(&mut self) {
        self.first.begin();
    }

    /// This thread asks for memory that its list does not have: returns the list, or gives the thread one of its own first.
    #[inline(always)]
    pub(crate) fn settle<'a>(&self, thread: &Thread, list: Option<Owned<'a>>) -> Option<Owned<'a>> {
        if core::ptr::eq(thread.lists.get(), self.address()) {
            return list;
        }
        drop(list);
        self.settle_slowly(thread);
        None
    }

    #[cold]
    #[inline(never)]
    fn settle_slowly(&self, thread: &Thread) {
        if !thread.take_seat() {
            return;
        }
        let chunk = thread.seat() as usize / SHARDS_PER_CHUNK;
        if chunk > 0 && self.more[chunk - 1].load(Ordering::Acquire).is_null() {
            self.make(chunk);
        }
        self.find(thread);
    }

    fn make(&self, chunk: usize) {
        let Some(made) = heap::map_zeroed(size_of::<Chunk>()) else { return };
        let made = made.cast::<Chunk>();
        // SAFETY: a mapping of its size, which is that of a page; zeros are valid, and no other thread knows it.
        unsafe { &mut *made }.begin();
        let place = &self.more[chunk - 1];
        if place.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: as above. Another thread was faster, and this costs addresses only.
            unsafe {
                made.drop_in_place();
                heap::return_pages(&*made);
            }
        }
    }

    /// A cached block of exactly this size, for a request of `requested_bytes`. Where this thread's list has none, the list,
    /// which is to be told of the request (`note_request`); None: it is busy.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        thread: &Thread,
        bytes: u64,
        requested_bytes: u64,
    ) -> Result<CachedBlock, Option<Owned<'_>>> {
        let shard = self.shard(thread);
        let Some(mut list) = shard.try_own() else { return Err(None) };
        let count = shard.cached_count.load(Ordering::Relaxed);
        if count == 0 || shard.wanted_bytes.load(Ordering::Relaxed) != bytes {
            return Err(Some(list));
        }
        let place = list.cached[(count as usize - 1) % CACHED_PER_SHARD_MAX];
        let Some(cached) = place.of_size(bytes) else { return Err(None) };
        shard.cached_count.store(count - 1, Ordering::Release);
        list.present.hits += 1;
        list.present.requested_taken += requested_bytes;
        Ok(cached)
    }

    /// Caches a claimed block of the size that this thread requests repeatedly, if there is a place for it. `word`: where it
    /// was claimed.
    #[inline(always)]
    pub(crate) fn offer(
        &self,
        thread: &Thread,
        cached: CachedBlock,
        requested_bytes: u64,
        word: u64,
    ) -> Offered {
        let shard = self.shard(thread);
        let Some(mut list) = shard.try_own() else { return Offered::NotNow };
        if list.repeated_bytes != cached.bytes {
            return Offered::NotWanted;
        }
        let count = shard.cached_count.load(Ordering::Relaxed);
        if count as usize >= CACHED_PER_SHARD_MAX {
            return Offered::NotNow;
        }
        cached.slot.mark_cached(word);
        list.present.requested_put += requested_bytes;
        list.cached[count as usize] = cached.listed();
        shard.cached_count.store(count + 1, Ordering::Release);
        Offered::Taken
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
        let Some(mut list) = shard.try_own() else { return Err(cached) };
        let wanted = list.repeated_bytes;
        if wanted != cached.bytes {
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
        self.shards().for_each(|shard| shard.empty(&mut each));
    }

    /// Takes out the blocks of lists that have served no request since the last call with `seen`.
    pub(crate) fn empty_unused(&self, seen: &mut ListsSeen, mut each: impl FnMut(CachedBlock)) {
        for (number, shard) in self.shards().enumerate() {
            if number == seen.0.len() {
                seen.0.push(0);
            }
            let seen = &mut seen.0[number];
            let hits = shard.with(|list| list.past_hits() + list.present.hits);
            if core::mem::replace(seen, hits) == hits {
                shard.empty(&mut each);
            }
        }
    }

    /// Whether the thread may have a list here that is not empty, and no other thread's.
    pub(crate) fn has_own(&self, thread: &Thread) -> bool {
        thread.seat() != SHARED && self.shard(thread).cached_count.load(Ordering::Relaxed) != 0
    }

    /// Takes out the blocks of this thread's list.
    #[inline]
    pub(crate) fn empty_own(&self, thread: &Thread, mut each: impl FnMut(CachedBlock)) {
        self.shard(thread).empty(&mut each);
    }

    /// Bytes in all lists: allocated to the core, free to the program.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.shards().map(Shard::cached_bytes).sum()
    }

    /// What the core does not know, except for a shard whose owner was stopped. Call under the
    /// allocator's lock.
    pub(crate) fn tally(&self, patience: Patience) -> Tally {
        let mut tally = Tally::default();
        self.shards().for_each(|shard| shard.add_to(&mut tally, patience));
        tally
    }

    /// Takes out every cached block, adds what was counted to `tally`, and restarts the counts. Call
    /// under the allocator's lock.
    pub(crate) fn start_anew(&self, tally: &mut Tally, mut each: impl FnMut(CachedBlock)) {
        for shard in self.shards() {
            let mut cached = Vec::new();
            shard.with(|list| {
                let count = shard.cached_count.swap(0, Ordering::Relaxed);
                let bytes = shard.wanted_bytes.load(Ordering::Relaxed);
                let listed = list.cached[..count as usize].iter();
                cached.extend(listed.filter_map(|place| place.of_size(bytes)));
                list.end_size(bytes);
                tally.add(&list.past.as_deref_mut().map(core::mem::take).unwrap_or_default());
            });
            cached.into_iter().for_each(&mut each);
        }
    }

    /// The context is gone, and its lists are empty: returns their pages. A concurrent access finds an
    /// empty list: all zeros are one.
    pub(crate) fn context_ended(&self) {
        self.shards().for_each(|shard| shard.with(|list| list.past = None));
        // SAFETY: on pages of their own; zeros are valid for all of them.
        self.chunks().skip(1).for_each(|chunk| unsafe { heap::return_pages(chunk) });
        // SAFETY: as above.
        unsafe { heap::return_pages(self) };
    }

    /// Those there are.
    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        // SAFETY: null, or a mapping that is never given back.
        let more = self.more.iter().filter_map(|it| unsafe { it.load(Ordering::Acquire).as_ref() });
        core::iter::once(&self.first).chain(more)
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.chunks().flat_map(|chunk| &chunk.0)
    }

    /// The thread's own, or the one of all that have none.
    #[inline(always)]
    fn shard(&self, thread: &Thread) -> &Shard {
        if core::ptr::eq(thread.lists.get(), self.address()) {
            // SAFETY: set with it, by `find`.
            return unsafe { &*thread.list.get().cast() };
        }
        self.find(thread)
    }

    #[inline(never)]
    fn find(&self, thread: &Thread) -> &Shard {
        let seat = thread.seat() as usize;
        let (chunk, place) = (seat / SHARDS_PER_CHUNK, seat % SHARDS_PER_CHUNK);
        let chunk = match chunk {
            0 => Some(&self.first),
            // SAFETY: as in `chunks`.
            _ => unsafe { self.more[chunk - 1].load(Ordering::Acquire).as_ref() },
        };
        let Some(chunk) = chunk else { return &self.first.0[SHARED as usize] };
        let shard = &chunk.0[place];
        if thread.seat() != SHARED {
            thread.list.set(core::ptr::from_ref(shard).cast());
            thread.lists.set(self.address());
        }
        shard
    }

    #[inline(always)]
    fn address(&self) -> *const c_void {
        core::ptr::from_ref(self).cast()
    }
}

impl Chunk {
    /// Of zeros.
    fn begin(&mut self) {
        self.0.iter_mut().for_each(|shard| shard.list.get_mut().past = Some(Box::default()));
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

impl Shard {
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
            if let Some(mut list) = self.try_own() {
                return add(&mut list);
            }
            pause(number);
        }
    }

    #[inline(always)]
    fn try_own(&self) -> Option<Owned<'_>> {
        if self.busy.swap(true, Ordering::Acquire) { None } else { Some(Owned(self)) }
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
        taken[..count].iter().filter_map(|place| place.of_size(bytes)).for_each(each);
    }

    fn with<T>(&self, body: impl FnOnce(&mut List) -> T) -> T {
        let mut spins = 0_u32;
        loop {
            if let Some(mut list) = self.try_own() {
                return body(&mut list);
            }
            spins += 1;
            pause(spins);
        }
    }
}

/// The list of a shard whose `busy` was clear and is this thread's now: no other reference to the list exists.
pub(crate) struct Owned<'a>(&'a Shard);

impl Owned<'_> {
    /// The list had no block for this request, and is about to be emptied. It changes its size only
    /// while empty, so that all its blocks have one size. True: it is empty.
    #[inline(always)]
    pub(crate) fn note_request(mut self, bytes: u64) -> bool {
        let shard = self.0;
        let wanted = shard.wanted_bytes.load(Ordering::Relaxed);
        let is_empty = shard.cached_count.load(Ordering::Relaxed) == 0;
        if bytes == wanted {
            self.note_repeated(bytes);
            return is_empty;
        }
        self.streak = 0;
        self.repeated_bytes = 0;
        if is_empty {
            if self.present.requested_put != 0 {
                self.end_size(wanted);
            }
            shard.wanted_bytes.store(bytes, Ordering::Relaxed);
        }
        is_empty
    }
}

impl Deref for Owned<'_> {
    type Target = List;

    #[inline(always)]
    fn deref(&self) -> &List {
        // SAFETY: see the text of the type.
        unsafe { &*self.0.list.get() }
    }
}

impl DerefMut for Owned<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut List {
        // SAFETY: see the text of the type.
        unsafe { &mut *self.0.list.get() }
    }
}

impl Drop for Owned<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

/// Pauses after so many tries.
fn pause(tries: u32) {
    // Asleep, not yielding: under a real-time policy a thread yields only to its equals, and the owner
    // may not be one.
    if tries.is_multiple_of(64) { own_thread::sleep(PAUSE) } else { spin_loop() }
}

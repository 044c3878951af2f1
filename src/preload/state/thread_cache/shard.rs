//! A shard: the place of a thread's list, which any thread may own for a few instructions.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::config;
use crate::process::library_thread;
use crate::process::lock_timeout::LockWait;
use crate::state::slot::Slot;
use crate::state::thread_cache::CachedBlock;
use crate::state::thread_cache::peak_sampling::Looks;
use crate::state::thread_cache::regulars::{CACHED_MAX, CHANGES_MIN, REGULAR_BYTES_MAX, Regulars};
use crate::state::thread_cache::tally::{Passes, Tally};

pub(super) const CACHED_PER_SHARD_MAX: usize = 8;
/// Number of blocks of regular sizes that are taken out at a time.
const SWEPT_MAX: usize = 64;
/// Requests of one size in a row before blocks of that size are cached.
const STREAK_MIN: u8 = 8;
/// Approximate time until a descheduled owner runs again.
const PAUSE: Duration = Duration::from_micros(1);
/// Number of tries where waiting is forbidden: the owner needs a shard for some nanoseconds, or was
/// interrupted.
const TRIES_MAX: u32 = 1000;

/// Result of noting a request that the list had no block for.
pub(crate) enum Noted {
    /// A block.
    Block(CachedBlock),
    /// The list is empty.
    Empty,
    NotEmpty,
    /// The thread requests several sizes, which must be kept apart (`keep_apart`).
    Several,
}

/// Takes pairs of cache lines, so that adjacent shards do not disturb each other. A thread that has
/// at most one cached block uses only the first line.
#[repr(C, align(128))]
pub(super) struct Shard {
    pub(super) busy: AtomicBool,
    /// Written only while the shard is owned; readers may see an older value.
    pub(super) cached_count: AtomicU32,
    /// Size of the last requests, and of every cached block.
    pub(super) wanted_bytes: AtomicU64,
    pub(super) list: UnsafeCell<List>,
    /// Bytes of regular sizes. Written only while the shard is owned, like the count.
    pub(super) regular_bytes: AtomicU64,
}

const _: () = {
    let first = offset_of!(Shard, list) + offset_of!(List, cached);
    assert!(first + size_of::<ListedBlock>() <= 64, "the first cached block is in the first line");
};

#[repr(C)]
pub(crate) struct List {
    /// Counts of the wanted size; `past` has those of all sizes before it.
    pub(super) present: Passes,
    /// Number of blocks of the wanted size that may be cached: 0 before enough requests of it in a
    /// row (`keeps_wanted`), then `CACHED_PER_SHARD_MAX`.
    pub(super) places_count: u32,
    pub(super) cached: [ListedBlock; CACHED_PER_SHARD_MAX],
    /// Number of requests in a row that had the wanted size.
    pub(super) streak: u8,
    /// Number of changes of the wanted size, while there are no regular ones.
    pub(super) changes: u8,
    pub(super) looks: Looks,
    /// `None` once the context has ended.
    pub(super) past: Option<Box<Tally>>,
    /// `None` while the thread requests one size at a time.
    pub(super) regulars: Option<Box<Regulars>>,
    /// Bytes that the thread may keep of its regular sizes.
    pub(super) budget_bytes: u64,
}

/// A cached block. Its size is the list's.
#[derive(Clone, Copy, Default)]
#[repr(C, packed(4))]
pub(super) struct ListedBlock {
    pub(super) address: u64,
    /// `None` where there is no block.
    pub(super) slot: Option<&'static Slot>,
    pub(super) block: u32,
}

impl List {
    /// Ends the counts of a size: the next blocks have another one.
    pub(super) fn end_size(&mut self, bytes: u64) {
        let passes = core::mem::take(&mut self.present);
        if let Some(past) = &mut self.past {
            past.add_passes(bytes, &passes, 0);
        }
    }

    /// Counts what passed through the regular sizes, which are empty, and drops them.
    pub(super) fn end_regulars(&mut self) -> Option<Box<Regulars>> {
        let mut regulars = self.regulars.take()?;
        regulars.end_sizes(&mut self.past);
        self.changes = 0;
        Some(regulars)
    }

    /// Returns whether blocks of the wanted size are cached.
    pub(super) fn keeps_wanted(&self) -> bool {
        self.streak >= STREAK_MIN
    }

    pub(super) fn hits(&self) -> u64 {
        let past = self.past.as_ref().map_or(0, |past| past.hits());
        past + self.present.hits + self.regulars.as_ref().map_or(0, |regulars| regulars.hits())
    }
}

impl ListedBlock {
    #[inline(always)]
    pub(super) fn of_size(self, bytes: u64) -> Option<CachedBlock> {
        let ListedBlock { address, slot, block } = self;
        slot.map(|slot| CachedBlock { address, bytes, block, slot })
    }
}

const _: () = assert!(size_of::<Shard>() == 256);

// SAFETY: only the thread that set `busy` accesses `list`.
unsafe impl Sync for Shard {}

impl Shard {
    pub(super) fn cached_bytes(&self) -> u64 {
        let count = self.cached_count.load(Ordering::Acquire);
        let regular = self.regular_bytes.load(Ordering::Acquire);
        u64::from(count) * self.wanted_bytes.load(Ordering::Relaxed) + regular
    }

    /// Returns whether any size was ever requested here.
    pub(super) fn has_begun(&self) -> bool {
        self.wanted_bytes.load(Ordering::Relaxed) != 0
    }

    pub(super) fn add_to(&self, tally: &mut Tally, wait: LockWait) {
        let mut add = |list: &mut List| {
            list.past.iter().for_each(|past| tally.add(past));
            let cached = self.cached_count.load(Ordering::Relaxed).into();
            tally.add_passes(self.wanted_bytes.load(Ordering::Relaxed), &list.present, cached);
            list.regulars.iter().for_each(|regulars| regulars.add_to(tally));
        };
        let tries = match wait {
            LockWait::Blocking => return self.with(add),
            LockWait::Timeout => TRIES_MAX * TRIES_MAX,
            LockWait::TryOnce => TRIES_MAX,
        };
        for number in 1..=tries {
            if let Some(mut list) = self.try_own() {
                return add(&mut list);
            }
            pause(number);
        }
    }

    #[inline(always)]
    pub(super) fn try_own(&self) -> Option<Owned<'_>> {
        if self.busy.swap(true, Ordering::Acquire) { None } else { Some(Owned(self)) }
    }

    pub(super) fn empty(&self, budgeted_bytes: &AtomicU64, each: &mut impl FnMut(CachedBlock)) {
        self.empty_list(each);
        if self.regular_bytes.load(Ordering::Relaxed) != 0 {
            self.empty_regulars(budgeted_bytes, each);
        }
    }

    #[inline]
    pub(super) fn empty_list(&self, each: &mut impl FnMut(CachedBlock)) {
        if self.cached_count.load(Ordering::Relaxed) != 0 {
            self.take_out(each);
        }
    }

    /// Takes out a few at a time: a vector would grow while others wait for the shard.
    #[inline(never)]
    fn empty_regulars(&self, budgeted_bytes: &AtomicU64, each: &mut impl FnMut(CachedBlock)) {
        let mut out = Vec::with_capacity(SWEPT_MAX);
        while self.sweep(budgeted_bytes, Regulars::sweep_all, &mut out) {
            out.drain(..).for_each(&mut *each);
        }
    }

    #[inline(never)]
    pub(super) fn empty_unused_regulars(
        &self,
        budgeted_bytes: &AtomicU64,
        each: &mut impl FnMut(CachedBlock),
    ) {
        let mut out = Vec::with_capacity(CACHED_MAX);
        self.sweep(budgeted_bytes, Regulars::sweep_unused, &mut out);
        out.into_iter().for_each(each);
    }

    /// Returns `false` if there was none.
    fn sweep(
        &self,
        budgeted_bytes: &AtomicU64,
        how: fn(&mut Regulars, &mut Vec<CachedBlock>) -> u64,
        out: &mut Vec<CachedBlock>,
    ) -> bool {
        self.with(|list| self.sweep_owned(list, budgeted_bytes, how, out))
    }

    pub(super) fn sweep_owned(
        &self,
        list: &mut List,
        budgeted_bytes: &AtomicU64,
        how: fn(&mut Regulars, &mut Vec<CachedBlock>) -> u64,
        out: &mut Vec<CachedBlock>,
    ) -> bool {
        let swept_bytes = list.regulars.as_mut().map_or(0, |regulars| how(regulars, out));
        let kept_bytes = self.regular_bytes.load(Ordering::Relaxed) - swept_bytes;
        self.regular_bytes.store(kept_bytes, Ordering::Relaxed);
        if kept_bytes == 0 {
            let budget_bytes = core::mem::take(&mut list.budget_bytes);
            budgeted_bytes.fetch_sub(budget_bytes, Ordering::Relaxed);
        }
        swept_bytes != 0
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

    pub(super) fn with<T>(&self, body: impl FnOnce(&mut List) -> T) -> T {
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

/// The list of a shard whose `busy` was clear and was set by this thread: no other reference to the
/// list exists.
pub(crate) struct Owned<'a>(&'a Shard);

impl Owned<'_> {
    /// Notes a request that the list had no block for, before the list is emptied. The list changes
    /// its size only while empty, so that all its blocks have one size. Returns `true` if it is
    /// empty.
    #[inline(always)]
    pub(crate) fn note_request(&mut self, bytes: u64) -> bool {
        let shard = self.0;
        let wanted = shard.wanted_bytes.load(Ordering::Relaxed);
        let is_empty = shard.cached_count.load(Ordering::Relaxed) == 0;
        if bytes == wanted {
            self.note_repeated();
            return is_empty;
        }
        self.streak = 0;
        self.places_count = 0;
        self.changes = self.changes.saturating_add(1);
        if is_empty {
            if self.present.requested_put != 0 {
                self.end_size(wanted);
            }
            shard.wanted_bytes.store(bytes, Ordering::Relaxed);
        }
        is_empty
    }

    /// Notes one more request in a row of the wanted size.
    #[inline(never)]
    fn note_repeated(&mut self) {
        // With red zones no block is cached: the requested size would differ from the core's.
        self.streak = self.streak.saturating_add(u8::from(config::zone_bytes() == 0));
        if self.keeps_wanted() {
            self.places_count = CACHED_PER_SHARD_MAX as u32;
        }
    }

    /// Notes a request, like `note_request`, and serves it with a block of a regular size if there
    /// is one.
    #[inline(always)]
    pub(crate) fn note_request_of_any(mut self, bytes: u64, requested_bytes: u64) -> Noted {
        let is_empty = self.note_request(bytes);
        if bytes <= REGULAR_BYTES_MAX && self.changes >= CHANGES_MIN {
            let List { regulars, past, .. } = &mut *self;
            let Some(regulars) = regulars else { return Noted::Several };
            if let Some(cached) = regulars.take(bytes, requested_bytes, past) {
                let shard = self.0;
                let kept_bytes = shard.regular_bytes.load(Ordering::Relaxed) - bytes;
                shard.regular_bytes.store(kept_bytes, Ordering::Relaxed);
                return Noted::Block(cached);
            }
        }
        if is_empty { Noted::Empty } else { Noted::NotEmpty }
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

/// Pauses after a failed try.
fn pause(tries: u32) {
    // Sleeps rather than yields: under a real-time policy a thread yields only to its equals, and
    // the owner may not be one.
    if tries.is_multiple_of(64) { library_thread::sleep(PAUSE) } else { spin_loop() }
}

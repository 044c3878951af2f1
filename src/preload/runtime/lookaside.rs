//! A few blocks per thread that were just freed, kept for the next allocation of the same size:
//! the pair `cudaMalloc`, `cudaFree` in a loop meets no shared lock.
//!
//! A held block is free for anyone (its barrier is in); the core still counts it as allocated.
//! A held block does not merge with its neighbours, and taking it is not always the choice that
//! the core would make; both cost memory (0.5 % on real traces). So a block is held only once a
//! thread has asked for the same size several times in a row, and a list does not outlive its use:
//! an allocation that finds nothing in its list returns the list to the core first, and the core then
//! chooses as if there were no list. Lists belong to shards, not to threads, so that any thread can
//! empty all of them: before the cache grows, before memory goes back, and under pressure. A shard
//! that is busy is passed by, never waited for, except to empty it.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::BlockId;

use crate::runtime::thread::Thread;

const SHARDS: usize = 32;
const HELD_PER_SHARD_MAX: usize = 8;
/// Requests of one size in a row before blocks of that size are held.
const STREAK_MIN: u32 = 8;

/// A block in a list.
#[derive(Clone, Copy, Default)]
pub struct Held {
    pub address: u64,
    pub bytes: u64,
    pub block: u32,
}

/// How often each list had served at some moment.
#[derive(Default)]
pub struct ListsSeen([u64; SHARDS]);

/// The lists of one context.
pub struct Lookaside {
    shards: [Shard; SHARDS],
}

/// Two cache lines each, so that neighbours do not disturb each other.
#[repr(align(128))]
struct Shard {
    busy: AtomicBool,
    /// Statistics, written by whoever has the shard.
    held_bytes: AtomicU64,
    hits: AtomicU64,
    list: UnsafeCell<List>,
}

struct List {
    held: [Held; HELD_PER_SHARD_MAX],
    count: usize,
    /// The size of the last requests, and how many of them in a row had it.
    wanted_bytes: u64,
    streak: u32,
}

impl List {
    fn note_request(&mut self, bytes: u64) {
        self.streak = if bytes == self.wanted_bytes { self.streak + 1 } else { 0 };
        self.wanted_bytes = bytes;
    }
}

// SAFETY: `list` is touched only by the thread that set `busy`.
unsafe impl Sync for Shard {}

impl Default for Lookaside {
    fn default() -> Lookaside {
        Lookaside { shards: [const { Shard::new() }; SHARDS] }
    }
}

impl Lookaside {
    /// A held block of exactly this size, if this thread's list has one.
    #[inline]
    pub fn take(&self, thread: &Thread, bytes: u64) -> Option<Held> {
        let shard = self.shard(thread);
        shard.try_with(|list| {
            let found = list.held[..list.count].iter().rposition(|held| held.bytes == bytes);
            let Some(index) = found else {
                list.note_request(bytes);
                return None;
            };
            let held = list.held[index];
            list.count -= 1;
            list.held[index] = list.held[list.count];
            add(&shard.held_bytes, bytes.wrapping_neg());
            add(&shard.hits, 1);
            Some(held)
        })?
    }

    /// Keeps a block of the size that this thread asks for again and again. `Err` returns what must
    /// go to the core instead: this block, or the oldest one of a full list.
    #[inline]
    pub fn put(&self, thread: &Thread, held: Held) -> Result<(), Held> {
        let shard = self.shard(thread);
        shard
            .try_with(|list| {
                if list.wanted_bytes != held.bytes || list.streak < STREAK_MIN {
                    return Err(held);
                }
                add(&shard.held_bytes, held.bytes);
                if list.count < HELD_PER_SHARD_MAX {
                    list.held[list.count] = held;
                    list.count += 1;
                    return Ok(());
                }
                let oldest = list.held[0];
                list.held.copy_within(1.., 0);
                list.held[HELD_PER_SHARD_MAX - 1] = held;
                add(&shard.held_bytes, oldest.bytes.wrapping_neg());
                Err(oldest)
            })
            .unwrap_or(Err(held))
    }

    /// Takes every held block out.
    pub fn empty(&self, mut each: impl FnMut(Held)) {
        self.shards.iter().for_each(|shard| shard.empty(&mut each));
    }

    /// Takes out what those lists hold that have served nobody since the last call with `seen`.
    pub fn empty_unused(&self, seen: &mut ListsSeen, mut each: impl FnMut(Held)) {
        for (shard, seen) in self.shards.iter().zip(&mut seen.0) {
            let hits = shard.hits.load(Ordering::Relaxed);
            if core::mem::replace(seen, hits) == hits {
                shard.empty(&mut each);
            }
        }
    }

    /// Takes out what this thread's list holds.
    pub fn empty_own(&self, thread: &Thread, mut each: impl FnMut(Held)) {
        self.shard(thread).empty(&mut each);
    }

    /// Bytes in all lists: allocated to the core, free to the program.
    pub fn held_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.held_bytes.load(Ordering::Relaxed)).sum()
    }

    pub fn hits(&self) -> u64 {
        self.shards.iter().map(|shard| shard.hits.load(Ordering::Relaxed)).sum()
    }

    #[inline]
    fn shard(&self, thread: &Thread) -> &Shard {
        &self.shards[thread.number() % SHARDS]
    }
}

impl Held {
    pub fn id(&self) -> BlockId {
        BlockId(self.block)
    }
}

impl Shard {
    const fn new() -> Shard {
        Shard {
            busy: AtomicBool::new(false),
            held_bytes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            list: UnsafeCell::new(List {
                held: [const { Held { address: 0, bytes: 0, block: 0 } }; HELD_PER_SHARD_MAX],
                count: 0,
                wanted_bytes: 0,
                streak: 0,
            }),
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

    fn empty(&self, each: &mut impl FnMut(Held)) {
        if self.held_bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut taken = [Held::default(); HELD_PER_SHARD_MAX];
        let mut count = 0;
        self.with(|list| {
            count = core::mem::take(&mut list.count);
            taken = list.held;
            self.held_bytes.store(0, Ordering::Relaxed);
        });
        taken[..count].iter().for_each(|held| each(*held));
    }

    fn with(&self, body: impl FnOnce(&mut List)) {
        let mut spins = 0;
        while self.busy.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins % 64 == 0 { std::thread::yield_now() } else { spin_loop() }
        }
        // SAFETY: as in `try_with`.
        body(unsafe { &mut *self.list.get() });
        self.busy.store(false, Ordering::Release);
    }
}

/// A plain addition: only the owner of the shard writes, readers may see it late.
#[inline]
fn add(cell: &AtomicU64, amount: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

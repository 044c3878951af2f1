//! Interned call stacks: a stack goes in as words, and a [`StackId`] comes out. Only the caller
//! knows what the words mean.
//!
//! Every hook of every thread calls it, nearly always with a known stack. Such a call hashes the
//! words once, takes one of 64 locks for the time of one comparison, and allocates nothing.
//!
//! The id encodes the place of the stack: `1 + shard + 64 * index`, where the index counts from 0
//! in each shard. Stacks spread evenly over the shards, so the largest id is a little above the
//! number of stacks, and a table indexed by ids wastes little.
//!
//! Stacks are never removed, so an id stays valid. The total of words is bounded: beyond it, new
//! stacks get [`StackId::NONE`] and are counted. A poisoned lock is used nevertheless: every change
//! is made in an order that leaves the shard sound.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::entry::StackId;
use crate::hash::hash_words;
use shard::Shard;

mod shard;

/// Allocates pieces of memory that survive the process.
pub trait PieceAllocator: Sync {
    /// Allocates a zeroed piece of the size that the layout defines (`persistent::log`). Returns
    /// `None` if no such memory is available now.
    fn allocate_piece(&self) -> Option<&'static mut [u64]>;
}

pub struct Stacks {
    shards: Box<[Padded]>,
    allocator: Option<&'static dyn PieceAllocator>,
    words_max: u64,
    words_count: AtomicU64,
    refused_count: AtomicU64,
}

/// Adjacent locks must not share a cache line, nor the pair that a processor fetches at once.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

const SHARDS_COUNT: usize = 64;
const SHARDS_BITS: u32 = SHARDS_COUNT.ilog2();
const _: () = assert!(1 << SHARDS_BITS == SHARDS_COUNT);

impl Stacks {
    /// Creates an empty table. `words_max` bounds the words of all stacks together. In addition to
    /// its words, a stack costs 20 to 30 bytes; see [`Stacks::memory_bytes`].
    pub fn new(words_max: u64) -> Stacks {
        let shards = (0..SHARDS_COUNT).map(|_| Padded(Mutex::new(Shard::default()))).collect();
        Stacks {
            shards,
            allocator: None,
            words_max,
            words_count: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
        }
    }

    /// Like [`Stacks::new`], in memory that survives the process, as long as the allocator provides
    /// it.
    pub fn persistent(words_max: u64, allocator: &'static dyn PieceAllocator) -> Stacks {
        Stacks { allocator: Some(allocator), ..Stacks::new(words_max) }
    }

    /// Returns the id of the stack, always the same for the same words, and whether the stack is
    /// new. Returns `NONE` for an empty stack, and for a new one that does not fit.
    pub fn intern(&self, words: &[u64]) -> (StackId, bool) {
        if words.is_empty() {
            return (StackId::NONE, false);
        }
        let hash = hash_words(words);
        // The top bits select the shard, because the shard's table uses the others.
        let number = (hash >> (64 - SHARDS_BITS)) as usize;
        let mut shard = self.lock(number);
        let known = shard.find(hash, words);
        let index = known.or_else(|| self.insert(&mut shard, number, hash, words));
        match index.and_then(|index| id_of(number, index)) {
            Some(id) => (id, known.is_none()),
            None => (StackId::NONE, false),
        }
    }

    /// Returns the words of a stack. Empty for `NONE` and for an id that was never returned.
    pub fn words(&self, id: StackId) -> Vec<u64> {
        let Some(place) = id.0.checked_sub(1) else { return Vec::new() };
        let number = place as usize % SHARDS_COUNT;
        let shard = self.lock(number);
        shard.words((place >> SHARDS_BITS) as usize).map(<[u64]>::to_vec).unwrap_or_default()
    }

    /// Returns the stacks added since the last call with this list, which must be empty at first.
    pub fn newer(&self, seen: &mut Vec<usize>) -> Vec<StackId> {
        seen.resize(SHARDS_COUNT, 0);
        let mut newer = Vec::new();
        for (number, seen) in seen.iter_mut().enumerate() {
            let len = self.lock(number).len();
            newer.extend((*seen..len).filter_map(|index| id_of(number, index)));
            *seen = len;
        }
        newer
    }

    /// Returns whether the stack is in memory that survives the process.
    pub fn is_persistent(&self, id: StackId) -> bool {
        let Some(place) = id.0.checked_sub(1) else { return false };
        let shard = self.lock(place as usize % SHARDS_COUNT);
        shard.is_chunked((place >> SHARDS_BITS) as usize)
    }

    /// Number of stacks.
    pub fn len(&self) -> usize {
        (0..SHARDS_COUNT).map(|number| self.lock(number).len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of times that a new stack did not fit.
    pub fn refused_count(&self) -> u64 {
        self.refused_count.load(Relaxed)
    }

    pub fn words_count(&self) -> u64 {
        self.words_count.load(Relaxed)
    }

    /// All memory that the stacks occupy, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let shards: usize = (0..SHARDS_COUNT).map(|number| self.lock(number).memory_bytes()).sum();
        shards + SHARDS_COUNT * size_of::<Padded>()
    }

    /// Checks every shard, for tests: its time grows with the number of stacks.
    ///
    /// # Panics
    ///
    /// Panics if a shard is not sound.
    pub fn check(&self) {
        let mut words_count = 0;
        for number in 0..SHARDS_COUNT {
            let shard = self.lock(number);
            words_count += shard.check(|hash| (hash >> (64 - SHARDS_BITS)) as usize == number);
        }
        let counted = self.words_count();
        assert!(words_count == counted, "the stacks have {words_count} words, counted {counted}");
        assert!(counted <= self.words_max, "{counted} words, {} allowed", self.words_max);
    }

    fn insert(&self, shard: &mut Shard, number: usize, hash: u64, words: &[u64]) -> Option<usize> {
        let more = words.len() as u64;
        let taken = self.words_count.fetch_update(Relaxed, Relaxed, |count| {
            count.checked_add(more).filter(|&count| count <= self.words_max)
        });
        let index = taken.ok().and_then(|_| {
            let id = id_of(number, shard.len());
            let index = id.and_then(|id| shard.insert(hash, words, id, self.allocator));
            if index.is_none() {
                self.words_count.fetch_sub(more, Relaxed);
            }
            index
        });
        if index.is_none() {
            self.refused_count.fetch_add(1, Relaxed);
        }
        index
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.shards[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id_of(number: usize, index: usize) -> Option<StackId> {
    let place = (index as u64) << SHARDS_BITS | number as u64;
    u32::try_from(place + 1).ok().map(StackId)
}

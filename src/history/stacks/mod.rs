//! Call stacks, each kept once: a stack goes in as words, and a [`StackId`] comes out. What the
//! words mean, only the caller knows.
//!
//! Called from every hook of every thread, nearly always with a stack that is known already. Such a
//! call hashes the words once, takes one of 64 locks for the time of one comparison, and allocates
//! nothing.
//!
//! The id says where the stack is: `1 + shard + 64 * index`, with the index counted from 0 in each
//! shard. Stacks spread evenly over the shards, so the largest id is a little above the number of
//! stacks, and a table indexed by ids wastes little.
//!
//! Nothing is ever removed, so an id stays good. The total of words is bounded: beyond it new
//! stacks get [`StackId::NONE`] and are counted. A poisoned lock is used nevertheless: every change is made in an order that leaves the shard sound.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::entry::StackId;
use crate::hash::hash_words;
use shard::Shard;

mod shard;

/// Lends pieces of memory that outlive the process.
pub trait PieceAllocator: Sync {
    /// Zeros, as many as the layout says (`persistent::log`). None: there is no such memory, now.
    fn allocate_piece(&self) -> Option<&'static mut [u64]>;
}

pub struct Stacks {
    shards: Box<[Padded]>,
    allocator: Option<&'static dyn PieceAllocator>,
    words_max: u64,
    words_count: AtomicU64,
    refused_count: AtomicU64,
}

/// Neighbouring locks must not share a cache line, nor the pair that a processor fetches at once.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

const SHARDS_COUNT: usize = 64;
const SHARDS_BITS: u32 = SHARDS_COUNT.ilog2();
const _: () = assert!(1 << SHARDS_BITS == SHARDS_COUNT);

impl Stacks {
    /// `words_max` bounds the words of all stacks together. Beside its words a stack costs 20 to 30
    /// bytes, see [`Stacks::memory_bytes`].
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

    /// The same, in memory that outlives the process, as long as some is lent.
    pub fn persistent(words_max: u64, allocator: &'static dyn PieceAllocator) -> Stacks {
        Stacks { allocator: Some(allocator), ..Stacks::new(words_max) }
    }

    /// The id of the stack; the same for the same words, always. `NONE` for an empty stack, and
    /// where there is no room for a new one.
    pub fn intern(&self, words: &[u64]) -> StackId {
        self.intern_telling(words).0
    }

    /// As [`Stacks::intern`], and whether the stack is new.
    pub fn intern_telling(&self, words: &[u64]) -> (StackId, bool) {
        if words.is_empty() {
            return (StackId::NONE, false);
        }
        let hash = hash_words(words);
        // The top bits: the shard's table uses the others.
        let number = (hash >> (64 - SHARDS_BITS)) as usize;
        let mut shard = self.lock(number);
        let known = shard.find(hash, words);
        let index = known.or_else(|| self.insert(&mut shard, number, hash, words));
        match index.and_then(|index| id_of(number, index)) {
            Some(id) => (id, known.is_none()),
            None => (StackId::NONE, false),
        }
    }

    /// The words of a stack; none for `NONE` and for an id that was never given.
    pub fn words(&self, id: StackId) -> Vec<u64> {
        let Some(place) = id.0.checked_sub(1) else { return Vec::new() };
        let number = place as usize % SHARDS_COUNT;
        let shard = self.lock(number);
        shard.words((place >> SHARDS_BITS) as usize).map(<[u64]>::to_vec).unwrap_or_default()
    }

    /// The stacks that came since the last call with this list, which is empty at first.
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

    /// Whether the stack lies where it outlives the process.
    pub fn is_persistent(&self, id: StackId) -> bool {
        let Some(place) = id.0.checked_sub(1) else { return false };
        let shard = self.lock(place as usize % SHARDS_COUNT);
        shard.is_chunked((place >> SHARDS_BITS) as usize)
    }

    /// How many stacks are kept.
    pub fn len(&self) -> usize {
        (0..SHARDS_COUNT).map(|number| self.lock(number).len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often there was no room for a new stack.
    pub fn refused_count(&self) -> u64 {
        self.refused_count.load(Relaxed)
    }

    pub fn words_count(&self) -> u64 {
        self.words_count.load(Relaxed)
    }

    /// All memory that the stacks take.
    pub fn memory_bytes(&self) -> usize {
        let shards: usize = (0..SHARDS_COUNT).map(|number| self.lock(number).memory_bytes()).sum();
        shards + SHARDS_COUNT * size_of::<Padded>()
    }

    /// Panics if a shard is not sound. For tests: it takes time for every stack.
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

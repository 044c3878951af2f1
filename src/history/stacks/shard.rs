//! One shard of the stacks: a table from hashes to stacks, and the words of the stacks. The words
//! are in pieces that never move, because copying megabytes inside a hook would delay the program
//! noticeably.
//!
//! * T1: the table has a power of two of slots, and at most half of them are taken.
//! * T2: every stack has exactly one slot, and a search for its words ends there.
//! * T3: no two stacks have the same words.

use super::PieceAllocator;
use crate::entry::StackId;
use crate::hash::hash_words;
use crate::persistent::log::{self, PIECE_WORDS};

#[derive(Default)]
pub(super) struct Shard {
    /// Empty, or a power of two of slots. A slot refers to a stack by its index plus 1; 0 means
    /// free.
    slots: Vec<Slot>,
    spans: Vec<Span>,
    pieces: Vec<Piece>,
}

/// A piece of the library's own memory, or one that survives the process. In the latter each stack
/// has a header before its words, which is written after them.
#[derive(Default)]
struct Piece {
    own: Vec<u64>,
    allocated: Option<AllocatedPiece>,
}

struct AllocatedPiece {
    words: &'static mut [u64],
    used: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Bits of the hash that do not choose the slot, so that nearly every comparison of words
    /// succeeds.
    tag: u32,
    number: u32,
}

/// Place of the words of a stack.
#[derive(Clone, Copy)]
struct Span {
    piece: u32,
    first: u32,
    words: u32,
}

const SLOTS_FIRST: usize = 16;
const PIECE_WORDS_MIN: usize = 256;
const PIECE_WORDS_MAX: usize = 16 * 1024;

impl Shard {
    pub(super) fn find(&self, hash: u64, words: &[u64]) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.first_slot(hash);
        loop {
            let slot = self.slots[at];
            let index = (slot.number as usize).checked_sub(1)?;
            if slot.tag == tag_of(hash) && self.words(index) == Some(words) {
                return Some(index);
            }
            at = self.next_slot(at);
        }
    }

    /// Inserts a stack that `find` did not find. Returns `None` if there is no memory. `id` is its
    /// number in persistent memory.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        words: &[u64],
        id: StackId,
        allocator: Option<&dyn PieceAllocator>,
    ) -> Option<usize> {
        let index = self.spans.len();
        let number = u32::try_from(index + 1).ok()?;
        self.spans.try_reserve(1).ok()?;
        self.grow_table()?;
        let span = self.append(words, id, allocator)?;
        self.spans.push(span);
        self.take_slot(hash, number);
        Some(index)
    }

    pub(super) fn words(&self, index: usize) -> Option<&[u64]> {
        let span = self.spans.get(index)?;
        let first = span.first as usize;
        self.pieces[span.piece as usize].words().get(first..first + span.words as usize)
    }

    /// Returns whether this stack is in memory that survives the process.
    pub(super) fn is_chunked(&self, index: usize) -> bool {
        let span = self.spans.get(index);
        span.is_some_and(|span| self.pieces[span.piece as usize].allocated.is_some())
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let words: usize = self.pieces.iter().map(Piece::capacity).sum();
        words * size_of::<u64>()
            + self.pieces.capacity() * size_of::<Piece>()
            + self.spans.capacity() * size_of::<Span>()
            + self.slots.capacity() * size_of::<Slot>()
    }

    /// Checks the invariants and returns the number of all words.
    ///
    /// # Panics
    ///
    /// Panics with the number of the first invariant that does not hold.
    pub(super) fn check(&self, belongs: impl Fn(u64) -> bool) -> u64 {
        let (slots, stacks) = (self.slots.len(), self.spans.len());
        assert!(slots == 0 || slots.is_power_of_two(), "T1: {slots} slots");
        assert!(2 * stacks <= slots, "T1: {stacks} stacks in {slots} slots");
        let taken = self.slots.iter().filter(|slot| slot.number != 0).count();
        assert!(taken == stacks, "T2: {taken} slots are taken, for {stacks} stacks");
        let mut words_count = 0;
        for index in 0..stacks {
            let words = self.words(index).expect("every stack has words");
            let hash = hash_words(words);
            assert!(belongs(hash), "T2: stack {index} belongs to another shard");
            let found = self.find(hash, words);
            assert!(found == Some(index), "T2, T3: stack {index} is found as {found:?}");
            words_count += words.len() as u64;
        }
        words_count
    }

    fn first_slot(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn next_slot(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn take_slot(&mut self, hash: u64, number: u32) {
        let mut at = self.first_slot(hash);
        while self.slots[at].number != 0 {
            at = self.next_slot(at);
        }
        self.slots[at] = Slot { tag: tag_of(hash), number };
    }

    /// Makes the table large enough for one more stack.
    fn grow_table(&mut self) -> Option<()> {
        if 2 * (self.spans.len() + 1) <= self.slots.len() {
            return Some(());
        }
        let count = (2 * self.slots.len()).max(SLOTS_FIRST);
        let mut slots = Vec::new();
        slots.try_reserve_exact(count).ok()?;
        slots.resize(count, Slot::default());
        self.slots = slots;
        for index in 0..self.spans.len() {
            let hash = hash_words(self.words(index).unwrap_or_default());
            self.take_slot(hash, index as u32 + 1);
        }
        Some(())
    }

    /// Appends the words to the last piece, or to a new piece.
    fn append(
        &mut self,
        words: &[u64],
        id: StackId,
        allocator: Option<&dyn PieceAllocator>,
    ) -> Option<Span> {
        if !self.pieces.last().is_some_and(|piece| piece.has_room(words.len())) {
            self.pieces.try_reserve(1).ok()?;
            let fits = words.len() < PIECE_WORDS;
            let allocated = allocator.filter(|_| fits).and_then(PieceAllocator::allocate_piece);
            let piece = match allocated {
                Some(words) => {
                    Piece { own: Vec::new(), allocated: Some(AllocatedPiece { words, used: 0 }) }
                }
                None => {
                    let mut own = Vec::new();
                    own.try_reserve_exact(self.next_piece_words().max(words.len())).ok()?;
                    Piece { own, allocated: None }
                }
            };
            self.pieces.push(piece);
        }
        let number = u32::try_from(self.pieces.len() - 1).ok()?;
        let first = self.pieces.last_mut()?.append(words, id);
        let first = u32::try_from(first).ok()?;
        Some(Span { piece: number, first, words: u32::try_from(words.len()).ok()? })
    }

    /// Returns the size of the next piece: small for a process with few stacks, and growing with
    /// them.
    fn next_piece_words(&self) -> usize {
        let last = self.pieces.last().map_or(0, |piece| piece.own.capacity());
        (2 * last).clamp(PIECE_WORDS_MIN, PIECE_WORDS_MAX)
    }
}

impl Piece {
    fn words(&self) -> &[u64] {
        match &self.allocated {
            Some(allocated) => allocated.words,
            None => &self.own,
        }
    }

    fn capacity(&self) -> usize {
        self.own.capacity().max(self.words().len())
    }

    fn has_room(&self, words: usize) -> bool {
        match &self.allocated {
            Some(allocated) => allocated.words.len() - allocated.used > words,
            None => self.own.capacity() - self.own.len() >= words,
        }
    }

    /// Appends to a piece that has enough free words. Returns the index of the first word.
    fn append(&mut self, words: &[u64], id: StackId) -> usize {
        match &mut self.allocated {
            Some(allocated) => {
                let first = allocated.used + 1;
                log::put(&mut allocated.words[allocated.used..], log::STACK, id.0, words);
                allocated.used = first + words.len();
                first
            }
            None => {
                self.own.extend_from_slice(words);
                self.own.len() - words.len()
            }
        }
    }
}

fn tag_of(hash: u64) -> u32 {
    (hash >> 26) as u32
}

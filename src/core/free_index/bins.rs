//! Free blocks in the order of choice. Most inserted blocks are the next to be removed: the
//! remainder of a split serves the next request, and a freed block merges with adjacent ones. So
//! the *newest* one waits outside of the bins.
//!
//! The others are in bins of similar size, with a bit for each bin that is not empty. Most bins
//! hold a few blocks, and most requests take the best of theirs: that one lies in the bin itself,
//! beside an ordered map of the others.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::iter;
use core::mem::replace;

use crate::block::{Block, Tag};
use crate::policy::BLOCK_BYTES_MIN;
use crate::rules::{Rule, rule_holds};
use crate::types::{Address, BlockId, ReuseCondition};

/// The order of choice: the smallest block, of the oldest segment, at the lowest address.
///
/// Note [Newest first]. Among equally large blocks that work of a stream may still use, the one
/// that was freed last is taken first. The work with the others may be complete: then they are free
/// for every request as soon as their events are queried, and in the driver the device has had
/// their memory since the program's last wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub bytes: u64,
    turn: u64,
    address: Address,
}

impl Rank {
    #[inline(always)]
    pub(crate) fn of(block: &Block) -> Rank {
        let Block { bytes, registration: turn, address, .. } = *block;
        Rank { bytes, turn, address }
    }

    /// Returns the rank of a block that a stream has freed.
    pub(crate) fn of_tagged(block: &Block, tag: Tag) -> Rank {
        match tag.ready {
            ReuseCondition::OnStream { .. } if rule_holds(Rule::NewestFreeFirst) => {
                Rank { turn: u64::MAX - tag.sequence, ..Rank::of(block) }
            }
            _ => Rank::of(block),
        }
    }

    /// Not after any block of at least `bytes`.
    pub(crate) fn first_of(bytes: u64) -> Rank {
        Rank { bytes, turn: 0, address: Address(0) }
    }
}

#[derive(Clone)]
pub(crate) struct Bins {
    /// As many as the largest block so far needed.
    bins: Vec<Bin>,
    /// Bit n is set while bin n is not empty.
    filled: [u64; WORDS_COUNT],
    /// Bit n is set while word n of those is not 0.
    filled_words: u32,
    /// The last inserted block, unless it was removed: in no bin yet.
    newest: Option<(Rank, BlockId)>,
    blocks_count: usize,
}

#[derive(Clone, Default)]
struct Bin {
    /// The best block. `None` only if there are no others.
    best: Option<(Rank, BlockId)>,
    others: BTreeMap<Rank, BlockId>,
}

impl Bin {
    /// Inserts into a bin that is not empty.
    #[inline(never)]
    fn insert_beside(&mut self, rank: Rank, id: BlockId) {
        let best = self.best.as_mut().expect("the bin has a block");
        let same = (best.0 == rank).then_some(best.1);
        let later = if rank < best.0 { replace(best, (rank, id)) } else { (rank, id) };
        let other = same.or_else(|| self.others.insert(later.0, later.1));
        assert!(other.is_none(), "{id:?} and {other:?} are in the same place");
    }

    /// Removes from a bin that has other blocks.
    #[inline(never)]
    fn remove_beside(&mut self, rank: Rank, id: BlockId) {
        let found = match self.best {
            Some(best) if best.0 == rank => {
                self.best = self.others.pop_first();
                Some(best.1)
            }
            _ => self.others.remove(&rank),
        };
        assert!(found == Some(id), "{id:?} is not listed, {found:?} is");
    }

    /// Blocks of at least `bytes`, best first.
    fn at_least(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        let best = self.best.filter(|(rank, _)| rank.bytes >= bytes);
        let others = self.others.range(Rank::first_of(bytes)..).map(|(rank, id)| (*rank, *id));
        best.into_iter().chain(others)
    }

    fn all(&self) -> impl Iterator<Item = (Rank, BlockId)> {
        self.best.into_iter().chain(self.others.iter().map(|(rank, id)| (*rank, *id)))
    }
}

impl Bins {
    pub(crate) fn new() -> Bins {
        let filled = [0; WORDS_COUNT];
        Bins { bins: Vec::new(), filled, filled_words: 0, newest: None, blocks_count: 0 }
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, rank: Rank, id: BlockId) {
        debug_assert!(
            self.get(rank).is_none(),
            "{id:?} and {:?} are in the same place",
            self.get(rank)
        );
        self.blocks_count += 1;
        if self.newest.is_some() {
            self.file_newest();
        }
        self.newest = Some((rank, id));
    }

    /// Moves the newest block into its bin.
    #[inline(never)]
    fn file_newest(&mut self) {
        let Some((rank, id)) = self.newest.take() else { return };
        let number = bin_of(rank.bytes);
        match self.bins.get_mut(number) {
            Some(bin) if bin.best.is_some() => return bin.insert_beside(rank, id),
            Some(bin) => bin.best = Some((rank, id)),
            None => self.extend(number, (rank, id)),
        }
        self.note_filled(number);
    }

    #[cold]
    fn extend(&mut self, number: usize, best: (Rank, BlockId)) {
        self.bins.resize_with(number + 1, Bin::default);
        self.bins[number].best = Some(best);
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, rank: Rank, id: BlockId) {
        self.blocks_count -= 1;
        match self.newest {
            Some(newest) if newest == (rank, id) => self.newest = None,
            _ => self.remove_from_bin(rank, id),
        }
    }

    /// Removes one block and inserts another.
    #[inline(always)]
    pub(crate) fn replace(&mut self, old: (Rank, BlockId), new: (Rank, BlockId)) {
        if self.newest != Some(old) {
            self.remove_from_bin(old.0, old.1);
            if self.newest.is_some() {
                self.file_newest();
            }
        }
        self.newest = Some(new);
    }

    #[inline(never)]
    fn remove_from_bin(&mut self, rank: Rank, id: BlockId) {
        let number = bin_of(rank.bytes);
        let bin = &mut self.bins[number];
        if bin.best != Some((rank, id)) || !bin.others.is_empty() {
            return bin.remove_beside(rank, id);
        }
        bin.best = None;
        self.note_empty(number);
    }

    /// Blocks of at least `bytes`, best first.
    pub(crate) fn at_least(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        let mut listed = self.listed(bytes).peekable();
        let mut newest = self.newest.filter(|(rank, _)| rank.bytes >= bytes);
        iter::from_fn(move || {
            let is_next = |newest: &mut (Rank, BlockId)| {
                listed.peek().is_none_or(|listed| newest.0 < listed.0)
            };
            newest.take_if(is_next).or_else(|| listed.next())
        })
    }

    /// Returns the best block that may serve, as long as blocks fit: if one does not fit, none
    /// after it does.
    pub(crate) fn first_that(
        &self,
        bytes: u64,
        fits: impl Fn(u64) -> bool,
        mut may_serve: impl FnMut(u64, BlockId) -> bool,
    ) -> Option<(Rank, BlockId)> {
        let newest = self.newest.filter(|(rank, _)| rank.bytes >= bytes && fits(rank.bytes));
        let newest = newest.filter(|(rank, id)| may_serve(rank.bytes, *id));
        let mut before = self.listed(bytes).take_while(|(rank, _)| {
            fits(rank.bytes) && newest.is_none_or(|newest| *rank < newest.0)
        });
        before.find(|(rank, id)| may_serve(rank.bytes, *id)).or(newest)
    }

    /// Returns the blocks of the bins.
    fn listed(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        let bin = bin_of(bytes);
        let same = self.bins.get(bin).into_iter().flat_map(move |bin| bin.at_least(bytes));
        let filled_after = |bin: &usize| self.filled_from(bin + 1);
        let larger = iter::successors(filled_after(&bin), filled_after);
        same.chain(larger.flat_map(|bin| self.bins[bin].all()))
    }

    /// Returns the best block of at least `bytes`.
    #[inline(always)]
    pub(crate) fn best(&self, bytes: u64) -> Option<(&Rank, BlockId)> {
        let newest = self.newest.as_ref().filter(|(rank, _)| rank.bytes >= bytes);
        let newest = newest.map(|(rank, id)| (rank, *id));
        // The case of a program whose free memory is all in one block.
        if self.filled_words == 0 {
            return newest;
        }
        match (self.best_listed(bytes), newest) {
            (Some(listed), Some(newest)) => Some(if listed.0 < newest.0 { listed } else { newest }),
            (listed, newest) => listed.or(newest),
        }
    }

    #[inline(always)]
    fn best_listed(&self, bytes: u64) -> Option<(&Rank, BlockId)> {
        let number = bin_of(bytes);
        let found = self.filled_from(number)?;
        let (rank, id) = self.bins[found].best.as_ref().expect("a filled bin has a block");
        // The blocks of all later bins fit.
        if rank.bytes < bytes {
            return self.best_beside(number, bytes);
        }
        Some((rank, *id))
    }

    /// Returns the best block if the best one of the bin is too small.
    #[inline(never)]
    fn best_beside(&self, number: usize, bytes: u64) -> Option<(&Rank, BlockId)> {
        let mut others = self.bins[number].others.range(Rank::first_of(bytes)..);
        let after = || self.best_after(number).map(|(rank, id)| (rank, id));
        others.next().or_else(after).map(|(rank, id)| (rank, *id))
    }

    /// Returns the best block of the bins after this one.
    #[inline(always)]
    fn best_after(&self, number: usize) -> Option<&(Rank, BlockId)> {
        self.bins[self.filled_from(number + 1)?].best.as_ref()
    }

    /// Returns the block of this rank.
    pub(crate) fn get(&self, rank: Rank) -> Option<BlockId> {
        let bin = self.bins.get(bin_of(rank.bytes));
        let best = self.newest.into_iter().chain(bin.and_then(|bin| bin.best));
        let mut best = best.filter(|(best, _)| *best == rank).map(|(_, id)| id);
        best.next().or_else(|| bin?.others.get(&rank).copied())
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks_count
    }

    #[inline(always)]
    fn note_filled(&mut self, number: usize) {
        let word = number / WORD_BITS;
        self.filled[word] |= 1 << (number % WORD_BITS);
        self.filled_words |= 1 << word;
    }

    #[inline(always)]
    fn note_empty(&mut self, number: usize) {
        let word = number / WORD_BITS;
        self.filled[word] &= !(1 << (number % WORD_BITS));
        if self.filled[word] == 0 {
            self.filled_words &= !(1 << word);
        }
    }

    /// Returns the first bin from this one on that is not empty.
    #[inline(always)]
    fn filled_from(&self, first: usize) -> Option<usize> {
        let (mut word, mut bits) = (first / WORD_BITS, 0);
        if let Some(filled) = self.filled.get(word) {
            bits = filled & (u64::MAX << (first % WORD_BITS));
        }
        if bits == 0 {
            let words = self.filled_words & (u32::MAX << word) << 1;
            word = words.trailing_zeros() as usize;
            bits = *self.filled.get(word)?;
        }
        Some(word * WORD_BITS + bits.trailing_zeros() as usize)
    }
}

/// 32 bins between two powers of two; below 32 units of 512 bytes, one for each size.
#[inline]
fn bin_of(bytes: u64) -> usize {
    let units = bytes / BLOCK_BYTES_MIN;
    let shift = (units | 1).ilog2().saturating_sub(STEPS_LOG2);
    ((shift as usize) << STEPS_LOG2) + (units >> shift) as usize
}

const WORD_BITS: usize = u64::BITS as usize;
const STEPS_LOG2: u32 = 5;
/// Enough for any number of bytes.
const BINS_COUNT_MAX: usize = (56 - STEPS_LOG2 as usize) << STEPS_LOG2;
const WORDS_COUNT: usize = BINS_COUNT_MAX / WORD_BITS;

const _: () = assert!(WORDS_COUNT < u32::BITS as usize);

const _: () = assert!(
    (((u64::MAX / BLOCK_BYTES_MIN).ilog2() - STEPS_LOG2 + 2) << STEPS_LOG2) as usize
        <= BINS_COUNT_MAX
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_the_sizes_without_gaps() {
        let bins: Vec<usize> = (1..5000).map(|units| bin_of(units * BLOCK_BYTES_MIN)).collect();
        assert!(bins.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
        assert_eq!(bins[31], bins[30] + 1, "one bin for each small size");
        assert!(bin_of(u64::MAX) < BINS_COUNT_MAX);
    }

    #[test]
    fn the_best_comes_first_across_bins() {
        let mut bins = Bins::new();
        let rank = |bytes, turn, address| Rank { bytes, turn, address: Address(address) };
        let large = rank(1 << 40, 0, 0);
        let ranks = [rank(512, 1, 0), rank(1 << 20, 1, 0), rank((1 << 20) + 512, 0, 512), large];
        for (number, rank) in ranks.into_iter().enumerate().rev() {
            bins.insert(rank, BlockId(number as u32));
        }
        let order = |bytes| bins.at_least(bytes).map(|(_, id)| id.0).collect::<Vec<_>>();
        assert_eq!(order(1), [0, 1, 2, 3]);
        assert_eq!(order(1 << 20), [1, 2, 3]);
        assert_eq!(order((1 << 20) + 1024), [3]);
        assert_eq!(order((1 << 40) + 512), [0_u32; 0]);
        for bytes in [1, 1 << 20, (1 << 20) + 1024, (1 << 40) + 512] {
            assert_eq!(bins.best(bytes).map(|(rank, id)| (*rank, id)), bins.at_least(bytes).next());
        }
        bins.remove(large, BlockId(3));
        assert_eq!(bins.at_least(1 << 30).count(), 0);
    }

    /// Blocks of few sizes, so that bins have none, one and several.
    #[test]
    fn bins_agree_with_an_ordered_map() {
        let (mut bins, mut model) = (Bins::new(), BTreeMap::new());
        let mut number = 1_u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) % below
        };
        let size = |random: &mut dyn FnMut(u64) -> u64| {
            (BLOCK_BYTES_MIN << (4 * random(6))) + random(3) * BLOCK_BYTES_MIN
        };
        for step in 0..20_000_u32 {
            let bytes = size(&mut random);
            let rank = Rank { bytes, turn: random(2), address: Address(random(3) * 512) };
            match model.remove(&rank) {
                Some(id) => bins.remove(rank, id),
                None => {
                    model.insert(rank, BlockId(step));
                    bins.insert(rank, BlockId(step));
                }
            }
            // Most of the time there are few.
            while model.len() as u64 > random(40) {
                let (rank, id) = model.pop_first().expect("one is left");
                bins.remove(rank, id);
            }
            // Also between sizes of one bin.
            let least = match random(2) {
                0 => random(1 << 30) >> random(22),
                _ => size(&mut random) + random(2),
            };
            let listed: Vec<_> =
                model.range(Rank::first_of(least)..).map(|(a, b)| (*a, *b)).collect();
            assert_eq!(bins.at_least(least).collect::<Vec<_>>(), listed);
            assert_eq!(bins.best(least).map(|(rank, id)| (*rank, id)), listed.first().copied());
            let (part, most) = (random(3) as u32, size(&mut random) + (1 << 20));
            let first = bins.first_that(least, |bytes| bytes < most, |_, id| id.0 % 3 == part);
            let fits = listed.iter().take_while(|(rank, _)| rank.bytes < most);
            assert_eq!(first, fits.copied().find(|(_, id)| id.0 % 3 == part));
            assert_eq!((bins.get(rank), bins.len()), (model.get(&rank).copied(), model.len()));
        }
    }
}

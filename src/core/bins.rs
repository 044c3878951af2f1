//! Free blocks in the order of choice, in bins of similar size: one ordered map each, and a bit for
//! each bin that is not empty. Most bins hold a few blocks, so that nearly every operation touches
//! one node, where a single map of all blocks has to descend through several.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::block::Block;
use crate::policy::BLOCK_BYTES_MIN;
use crate::types::{Address, BlockId};

/// The order of choice: the smallest block, of the oldest segment, at the lowest address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub bytes: u64,
    registration: u64,
    address: Address,
}

impl Rank {
    pub(crate) fn of(block: &Block) -> Rank {
        let Block { bytes, registration, address, .. } = *block;
        Rank { bytes, registration, address }
    }

    /// Not after any block of at least `bytes`.
    fn first_of(bytes: u64) -> Rank {
        Rank { bytes, registration: 0, address: Address(0) }
    }
}

#[derive(Clone)]
pub(crate) struct Bins {
    /// As many as the largest block so far needed.
    bins: Vec<BTreeMap<Rank, BlockId>>,
    /// Bit n is set while bin n is not empty.
    filled: [u64; BINS_COUNT_MAX / WORD_BITS],
    blocks_count: usize,
}

impl Bins {
    pub(crate) fn new() -> Bins {
        Bins { bins: Vec::new(), filled: [0; BINS_COUNT_MAX / WORD_BITS], blocks_count: 0 }
    }

    pub(crate) fn insert(&mut self, rank: Rank, id: BlockId) {
        let bin = bin_of(rank.bytes);
        if bin >= self.bins.len() {
            self.bins.resize_with(bin + 1, BTreeMap::new);
        }
        let other = self.bins[bin].insert(rank, id);
        assert!(other.is_none(), "{id:?} and {other:?} are in the same place");
        self.filled[bin / WORD_BITS] |= 1 << (bin % WORD_BITS);
        self.blocks_count += 1;
    }

    pub(crate) fn remove(&mut self, rank: Rank, id: BlockId) {
        let bin = bin_of(rank.bytes);
        let found = self.bins.get_mut(bin).and_then(|blocks| blocks.remove(&rank));
        assert!(found == Some(id), "{id:?} is not listed, {found:?} is");
        if self.bins[bin].is_empty() {
            self.filled[bin / WORD_BITS] &= !(1 << (bin % WORD_BITS));
        }
        self.blocks_count -= 1;
    }

    /// Blocks of at least `bytes`, best first.
    pub(crate) fn at_least(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        let bin = bin_of(bytes);
        let same = self.bins.get(bin).filter(|blocks| !blocks.is_empty());
        let same = same.into_iter().flat_map(move |blocks| blocks.range(Rank::first_of(bytes)..));
        let larger = self.filled_after(bin).flat_map(|bin| self.bins[bin].iter());
        same.chain(larger).map(|(rank, id)| (*rank, *id))
    }

    /// The best of those. Apart from `at_least`, which is for every request: a second caller keeps the
    /// compiler from merging that into the search.
    pub(crate) fn best(&self, bytes: u64) -> Option<(Rank, BlockId)> {
        let bin = bin_of(bytes);
        let same = self.bins.get(bin).and_then(|bin| bin.range(Rank::first_of(bytes)..).next());
        let larger = || self.bins[self.filled_after(bin).next()?].first_key_value();
        same.or_else(larger).map(|(rank, id)| (*rank, *id))
    }

    pub(crate) fn get(&self, rank: Rank) -> Option<BlockId> {
        self.bins.get(bin_of(rank.bytes))?.get(&rank).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks_count
    }

    fn filled_after(&self, bin: usize) -> impl Iterator<Item = usize> {
        let mut next = bin + 1;
        core::iter::from_fn(move || {
            let mut word = next / WORD_BITS;
            let mut bits = *self.filled.get(word)? & (u64::MAX << (next % WORD_BITS));
            while bits == 0 {
                word += 1;
                bits = *self.filled.get(word)?;
            }
            let found = word * WORD_BITS + bits.trailing_zeros() as usize;
            next = found + 1;
            Some(found)
        })
    }
}

/// 32 bins between two powers of two; below 32 units of 512 bytes, one for each size.
fn bin_of(bytes: u64) -> usize {
    let units = bytes / BLOCK_BYTES_MIN;
    let log2 = units.max(1).ilog2();
    match log2.checked_sub(STEPS_LOG2) {
        None => units as usize,
        Some(shift) => ((shift as usize) << STEPS_LOG2) + (units >> shift) as usize,
    }
}

const WORD_BITS: usize = u64::BITS as usize;
const STEPS_LOG2: u32 = 5;
/// Enough for any number of bytes.
const BINS_COUNT_MAX: usize = (56 - STEPS_LOG2 as usize) << STEPS_LOG2;

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
        let rank =
            |bytes, registration, address| Rank { bytes, registration, address: Address(address) };
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
            assert_eq!(bins.best(bytes), bins.at_least(bytes).next());
        }
        bins.remove(large, BlockId(3));
        assert_eq!(bins.at_least(1 << 30).count(), 0);
    }
}

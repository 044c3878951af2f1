//! Free blocks in the order of choice, in bins of similar size, and a bit for each bin that is not empty. Most
//! bins hold a few blocks, and most requests take the best of theirs: that one lies in the bin itself, beside an
//! ordered map of the others, so that nearly every operation goes without a map.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::replace;

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
    bins: Vec<Bin>,
    /// Bit n is set while bin n is not empty.
    filled: [u64; BINS_COUNT_MAX / WORD_BITS],
    blocks_count: usize,
}

#[derive(Clone, Default)]
struct Bin {
    /// None only where there are no others.
    best: Option<(Rank, BlockId)>,
    others: BTreeMap<Rank, BlockId>,
}

impl Bin {
    #[inline]
    fn insert(&mut self, rank: Rank, id: BlockId) {
        let Some(best) = &mut self.best else {
            self.best = Some((rank, id));
            return;
        };
        let later = if rank < best.0 { replace(best, (rank, id)) } else { (rank, id) };
        let other = (later.0 == best.0).then_some(best.1);
        let other = other.or_else(|| self.others.insert(later.0, later.1));
        assert!(other.is_none(), "{id:?} and {other:?} are in the same place");
    }

    /// The block of this rank.
    #[inline]
    fn remove(&mut self, rank: Rank) -> Option<BlockId> {
        let best = self.best?;
        if best.0 != rank {
            return self.others.remove(&rank);
        }
        self.best = if self.others.is_empty() { None } else { self.others.pop_first() };
        Some(best.1)
    }

    /// The best block of at least `bytes`.
    #[inline]
    fn best_of(&self, bytes: u64) -> Option<(Rank, BlockId)> {
        let best = self.best?;
        if best.0.bytes >= bytes || self.others.is_empty() {
            return (best.0.bytes >= bytes).then_some(best);
        }
        let (rank, id) = self.others.range(Rank::first_of(bytes)..).next()?;
        Some((*rank, *id))
    }

    /// Blocks of at least `bytes`, best first.
    fn at_least(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        let best = self.best.filter(|(rank, _)| rank.bytes >= bytes);
        let others = self.others.range(Rank::first_of(bytes)..).map(|(rank, id)| (*rank, *id));
        best.into_iter().chain(others)
    }
}

impl Bins {
    pub(crate) fn new() -> Bins {
        Bins { bins: Vec::new(), filled: [0; BINS_COUNT_MAX / WORD_BITS], blocks_count: 0 }
    }

    pub(crate) fn insert(&mut self, rank: Rank, id: BlockId) {
        let bin = bin_of(rank.bytes);
        if bin >= self.bins.len() {
            self.bins.resize_with(bin + 1, Bin::default);
        }
        self.bins[bin].insert(rank, id);
        self.filled[bin / WORD_BITS] |= 1 << (bin % WORD_BITS);
        self.blocks_count += 1;
    }

    pub(crate) fn remove(&mut self, rank: Rank, id: BlockId) {
        let number = bin_of(rank.bytes);
        let bin = &mut self.bins[number];
        let found = bin.remove(rank);
        assert!(found == Some(id), "{id:?} is not listed, {found:?} is");
        if bin.best.is_none() {
            self.filled[number / WORD_BITS] &= !(1 << (number % WORD_BITS));
        }
        self.blocks_count -= 1;
    }

    /// Blocks of at least `bytes`, best first.
    pub(crate) fn at_least(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        let bin = bin_of(bytes);
        let same = self.bins.get(bin).into_iter().flat_map(move |bin| bin.at_least(bytes));
        let larger = self.filled_after(bin).flat_map(|bin| self.bins[bin].at_least(0));
        same.chain(larger)
    }

    /// The best of those.
    #[inline]
    pub(crate) fn best(&self, bytes: u64) -> Option<(Rank, BlockId)> {
        let number = bin_of(bytes);
        let same = self.bins.get(number)?.best_of(bytes);
        same.or_else(|| self.bins[self.filled_after(number).next()?].best)
    }

    pub(crate) fn get(&self, rank: Rank) -> Option<BlockId> {
        let bin = self.bins.get(bin_of(rank.bytes))?;
        let best = bin.best.filter(|(best, _)| *best == rank).map(|(_, id)| id);
        best.or_else(|| bin.others.get(&rank).copied())
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

//! The free blocks of one pool: those that every request may take, and those of each stream.
//! Pending and retired blocks are in no index: they cannot be taken.

pub(crate) mod bins;

use alloc::collections::BTreeMap;

use crate::block::{Block, State};
use crate::free_index::bins::{Bins, Rank};
use crate::types::{BlockId, ReuseCondition, StreamId};

/// Bins of streams without free blocks are kept for the next free, but not for more streams
/// than this: programs may create and destroy streams all the time.
const STREAMS_COUNT_KEPT_MAX: usize = 64;

#[derive(Clone)]
pub(crate) struct FreeIndex {
    everywhere: Bins,
    on_stream: BTreeMap<StreamId, Bins>,
}

impl FreeIndex {
    pub(crate) fn new() -> FreeIndex {
        FreeIndex { everywhere: Bins::new(), on_stream: BTreeMap::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, id: BlockId, block: &Block) {
        match listing(block) {
            IndexPlace::Shared => self.everywhere.insert(Rank::of(block), id),
            IndexPlace::PerStream(stream, rank) => self.insert_on_stream(stream, rank, id),
            IndexPlace::Unindexed => {}
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: BlockId, block: &Block) {
        match listing(block) {
            IndexPlace::Shared => self.everywhere.remove(Rank::of(block), id),
            IndexPlace::PerStream(stream, rank) => self.remove_on_stream(stream, rank, id),
            IndexPlace::Unindexed => {}
        }
    }

    /// Inserts a plain block.
    #[inline(always)]
    pub(crate) fn insert_everywhere(&mut self, rank: Rank, id: BlockId) {
        self.everywhere.insert(rank, id);
    }

    /// Removes a plain block.
    #[inline(always)]
    pub(crate) fn remove_everywhere(&mut self, rank: Rank, id: BlockId) {
        self.everywhere.remove(rank, id);
    }

    /// Removes one plain block and inserts another.
    #[inline(always)]
    pub(crate) fn replace_everywhere(&mut self, old: (Rank, BlockId), new: (Rank, BlockId)) {
        self.everywhere.replace(old, new);
    }

    #[inline(never)]
    fn insert_on_stream(&mut self, stream: StreamId, rank: Rank, id: BlockId) {
        self.on_stream.entry(stream).or_insert_with(Bins::new).insert(rank, id);
    }

    #[inline(never)]
    fn remove_on_stream(&mut self, stream: StreamId, rank: Rank, id: BlockId) {
        let bins = self.on_stream.get_mut(&stream).expect("the stream has free blocks");
        bins.remove(rank, id);
        if bins.len() == 0 && self.on_stream.len() > STREAMS_COUNT_KEPT_MAX {
            self.on_stream.remove(&stream);
        }
    }

    /// Blocks that every request may take.
    pub(crate) fn everywhere(&self) -> &Bins {
        &self.everywhere
    }

    /// Blocks that were freed on `stream`.
    pub(crate) fn on_stream(&self, stream: StreamId) -> Option<&Bins> {
        self.on_stream.get(&stream)
    }

    /// Blocks freed on any stream. Only for tests that break a rule.
    pub(crate) fn on_any_stream(&self) -> impl Iterator<Item = &Bins> {
        self.on_stream.values()
    }

    /// The best block of at least `bytes` that every request may take, or one of `stream`.
    pub(crate) fn best(&self, stream: Option<StreamId>, bytes: u64) -> Option<(&Rank, BlockId)> {
        let on_stream = stream.and_then(|stream| self.on_stream.get(&stream)?.best(bytes));
        on_stream.into_iter().chain(self.everywhere.best(bytes)).min_by_key(|(rank, _)| rank.bytes)
    }

    pub(crate) fn blocks_count(&self) -> usize {
        self.everywhere.len() + self.on_stream.values().map(Bins::len).sum::<usize>()
    }

    /// Whether the block is in the index where it belongs. For `check()`.
    pub(crate) fn holds(&self, id: BlockId, block: &Block) -> bool {
        match listing(block) {
            IndexPlace::Shared => self.everywhere.get(Rank::of(block)) == Some(id),
            IndexPlace::PerStream(stream, rank) => {
                self.on_stream.get(&stream).and_then(|bins| bins.get(rank)) == Some(id)
            }
            IndexPlace::Unindexed => true,
        }
    }
}

enum IndexPlace {
    Shared,
    PerStream(StreamId, Rank),
    Unindexed,
}

/// Returns the index that a block belongs to.
#[inline(always)]
fn listing(block: &Block) -> IndexPlace {
    if block.exported {
        return IndexPlace::Unindexed;
    }
    if let State::Free = block.state {
        return IndexPlace::Shared;
    }
    let State::Tagged(tag) = block.state else { return IndexPlace::Unindexed };
    match tag.ready {
        ReuseCondition::OnStream { stream, .. } | ReuseCondition::InPool { stream } => {
            IndexPlace::PerStream(stream, Rank::of_tagged(block, tag))
        }
        _ => IndexPlace::Unindexed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(bytes: u64) -> Rank {
        Rank::first_of(bytes)
    }

    /// Bins are kept for the next free of a stream, and not for each stream that ever was.
    #[test]
    fn streams_that_come_and_go_leave_few_bins() {
        for count in [1, 63, 64, 65, 66, 200] {
            let mut index = FreeIndex::new();
            let streams = || (0..count).map(StreamId);
            for _ in 0..2 {
                streams().for_each(|stream| index.insert_on_stream(stream, rank(512), BlockId(0)));
                assert_eq!(index.on_stream.len() as u64, count);
                for stream in streams() {
                    index.insert_on_stream(stream, rank(1024), BlockId(1));
                    index.remove_on_stream(stream, rank(1024), BlockId(1));
                    assert!(index.best(Some(stream), 512).is_some(), "{stream:?} has a block");
                }
                streams().for_each(|stream| index.remove_on_stream(stream, rank(512), BlockId(0)));
                assert_eq!(index.on_stream.len() as u64, count.min(64));
            }
        }
    }
}

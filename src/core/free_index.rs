//! The free blocks of one pool: those that every request may take, and those of each stream.
//! Pending and retired blocks are in no index: they cannot be taken.

use alloc::collections::BTreeMap;

use crate::bins::{Bins, Rank};
use crate::block::{Block, State};
use crate::types::{BlockId, Ready, StreamId};

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

    pub(crate) fn insert(&mut self, id: BlockId, block: &Block) {
        match listing(block) {
            Listing::Everywhere => self.everywhere.insert(Rank::of(block), id),
            Listing::Stream(stream) => {
                let bins = self.on_stream.entry(stream).or_insert_with(Bins::new);
                bins.insert(Rank::of(block), id);
            }
            Listing::Nowhere => {}
        }
    }

    pub(crate) fn remove(&mut self, id: BlockId, block: &Block) {
        match listing(block) {
            Listing::Everywhere => self.everywhere.remove(Rank::of(block), id),
            Listing::Stream(stream) => {
                let bins = self.on_stream.get_mut(&stream).expect("the stream has free blocks");
                bins.remove(Rank::of(block), id);
                if bins.len() == 0 && self.on_stream.len() > STREAMS_COUNT_KEPT_MAX {
                    self.on_stream.remove(&stream);
                }
            }
            Listing::Nowhere => {}
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
    pub(crate) fn best(&self, stream: Option<StreamId>, bytes: u64) -> Option<(Rank, BlockId)> {
        let on_stream = stream.and_then(|stream| self.on_stream.get(&stream)?.best(bytes));
        on_stream.into_iter().chain(self.everywhere.best(bytes)).min_by_key(|(rank, _)| rank.bytes)
    }

    pub(crate) fn blocks_count(&self) -> usize {
        self.everywhere.len() + self.on_stream.values().map(Bins::len).sum::<usize>()
    }

    /// Whether the block is in the index where it belongs. For `check()`.
    pub(crate) fn holds(&self, id: BlockId, block: &Block) -> bool {
        let rank = Rank::of(block);
        match listing(block) {
            Listing::Everywhere => self.everywhere.get(rank) == Some(id),
            Listing::Stream(stream) => {
                self.on_stream.get(&stream).and_then(|bins| bins.get(rank)) == Some(id)
            }
            Listing::Nowhere => true,
        }
    }
}

enum Listing {
    Everywhere,
    Stream(StreamId),
    Nowhere,
}

/// In which index a block belongs.
fn listing(block: &Block) -> Listing {
    match block.state {
        _ if block.exported => Listing::Nowhere,
        State::Allocated => Listing::Nowhere,
        State::Free => Listing::Everywhere,
        State::Tagged(tag) => match tag.ready {
            Ready::OnStream { stream, .. } | Ready::InPool { stream } => Listing::Stream(stream),
            _ => Listing::Nowhere,
        },
    }
}

//! The free blocks of one pool that someone may take, ordered for best fit. Pending blocks are in
//! no index: nobody may take them.

use alloc::collections::BTreeMap;

use crate::block::{Block, State};
use crate::types::{Address, BlockId, Ready, StreamId};

/// The order of choice: the smallest block, of the oldest segment, at the lowest address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    pub bytes: u64,
    registration: u64,
    address: Address,
}

impl Rank {
    fn of(block: &Block) -> Rank {
        let Block { bytes, registration, address, .. } = *block;
        Rank { bytes, registration, address }
    }

    /// Before every block of at least `bytes`.
    fn first_of(bytes: u64) -> Rank {
        Rank { bytes, registration: 0, address: Address(0) }
    }
}

#[derive(Clone)]
pub(crate) struct FreeIndex {
    for_anyone: BTreeMap<Rank, BlockId>,
    on_stream: BTreeMap<(StreamId, Rank), BlockId>,
}

impl FreeIndex {
    pub(crate) fn new() -> FreeIndex {
        FreeIndex { for_anyone: BTreeMap::new(), on_stream: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, id: BlockId, block: &Block) {
        let rank = Rank::of(block);
        let other = match place(block) {
            Place::Anyone => self.for_anyone.insert(rank, id),
            Place::Stream(stream) => self.on_stream.insert((stream, rank), id),
            Place::Nowhere => None,
        };
        assert!(other.is_none(), "block {id:?} and {other:?} have the same address");
    }

    pub(crate) fn remove(&mut self, id: BlockId, block: &Block) {
        let rank = Rank::of(block);
        let found = match place(block) {
            Place::Anyone => self.for_anyone.remove(&rank),
            Place::Stream(stream) => self.on_stream.remove(&(stream, rank)),
            Place::Nowhere => return,
        };
        assert!(found == Some(id), "block {id:?} is not in its index, {found:?} is");
    }

    /// Blocks of at least `bytes` that anyone may take, best first.
    pub(crate) fn for_anyone(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        self.for_anyone.range(Rank::first_of(bytes)..).map(|(rank, id)| (*rank, *id))
    }

    /// Blocks of at least `bytes` that were freed on `stream`, best first.
    pub(crate) fn on_stream(
        &self,
        stream: StreamId,
        bytes: u64,
    ) -> impl Iterator<Item = (Rank, BlockId)> {
        self.on_stream
            .range((stream, Rank::first_of(bytes))..)
            .take_while(move |((on, _), _)| *on == stream)
            .map(|((_, rank), id)| (*rank, *id))
    }

    /// Blocks freed on any stream, in no useful order. Only for tests that break a rule.
    pub(crate) fn on_any_stream(&self, bytes: u64) -> impl Iterator<Item = (Rank, BlockId)> {
        self.on_stream
            .iter()
            .map(|((_, rank), id)| (*rank, *id))
            .filter(move |(rank, _)| rank.bytes >= bytes)
    }

    pub(crate) fn blocks_count(&self) -> usize {
        self.for_anyone.len() + self.on_stream.len()
    }

    /// Whether the block is in the index where it belongs. For `check()`.
    pub(crate) fn holds(&self, id: BlockId, block: &Block) -> bool {
        let rank = Rank::of(block);
        match place(block) {
            Place::Anyone => self.for_anyone.get(&rank) == Some(&id),
            Place::Stream(stream) => self.on_stream.get(&(stream, rank)) == Some(&id),
            Place::Nowhere => true,
        }
    }
}

pub(crate) enum Place {
    Anyone,
    Stream(StreamId),
    Nowhere,
}

/// In which index a block belongs.
pub(crate) fn place(block: &Block) -> Place {
    match block.state {
        State::Allocated => Place::Nowhere,
        State::Free => Place::Anyone,
        State::Tagged(tag) => match tag.ready {
            Ready::OnStream { stream, .. } => Place::Stream(stream),
            Ready::Anyone | Ready::After { .. } | Ready::NextBarrier => Place::Nowhere,
        },
    }
}

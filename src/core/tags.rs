//! The tags of freed blocks, by age: a barrier drops all up to an age, completed events drop those
//! that wait for them. They are not indexed by event: each free and each request would pay for a
//! list that only a query of the events reads. They are indexed by stream: a stream searches its
//! own for adjacent blocks (`stream_dependencies`), oldest first.
//!
//! Blocks that wait for their private pool are not listed here: no barrier ends that.
//!
//! Ages are numbers given in the order of the frees. That order stands for the order on the device,
//! so the caller frees on one stream in the order in which it recorded the events. A caller that
//! remembers between which ages the tags of an event were made finds them without a walk.

pub(crate) mod stream_dependencies;

use alloc::collections::binary_heap::PeekMut;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::iter;
use core::ops::Range;

use crate::block::{State, Tag};
use crate::rules::{Rule, rule_holds};
use crate::types::{BlockId, EventId, Pool, ReuseCondition, StreamId};

/// A point between two frees: tags made before it are older. Take it before recording a barrier,
/// so that a free which comes between the recording and its report is not counted as covered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TagEpoch(u64);

impl TagEpoch {
    /// Returns whether the tag of this age was made before this epoch.
    pub(crate) fn is_behind(self, sequence: u64) -> bool {
        sequence < self.0 || !rule_holds(Rule::BarrierMark)
    }
}

/// Lists of streams that are empty are kept for the next free, but not for more streams than this.
const STREAMS_COUNT_KEPT_MAX: usize = 64;

/// A split gives several blocks one age, hence the block in the key.
type ByAge = BTreeMap<(u64, BlockId), Option<EventId>>;

#[derive(Clone)]
pub(crate) struct Tags {
    next_sequence: u64,
    /// Every tagged block that a barrier frees, except those that a stream may take earlier.
    by_age: ByAge,
    /// Blocks that a stream may take before, by the stream and the pool of the block.
    on_stream: BTreeMap<(StreamId, Pool), ByAge>,
    /// Blocks that wait for another context.
    elsewhere: ByAge,
    blocks_count: usize,
}

impl Tags {
    pub(crate) fn new() -> Tags {
        let (by_age, elsewhere) = (BTreeMap::new(), BTreeMap::new());
        let on_stream = BTreeMap::new();
        Tags { next_sequence: 0, by_age, on_stream, elsewhere, blocks_count: 0 }
    }

    /// Gives the tag its age. A block that is free for every request gets none.
    pub(crate) fn make(&mut self, ready: ReuseCondition) -> Option<Tag> {
        if ready == ReuseCondition::Everywhere {
            return None;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Some(Tag { ready, sequence })
    }

    #[inline(never)]
    pub(crate) fn insert(&mut self, id: BlockId, pool: Pool, tag: Tag) {
        let list = match tag.ready {
            ReuseCondition::OnStream { stream, .. } => {
                self.on_stream.entry((stream, pool)).or_default()
            }
            ready if ready.is_ended_by_barrier() => &mut self.by_age,
            _ => &mut self.elsewhere,
        };
        list.insert((tag.sequence, id), tag.ready.event());
        self.blocks_count += 1;
    }

    #[inline(never)]
    pub(crate) fn remove(&mut self, id: BlockId, pool: Pool, tag: Tag) {
        let key = (tag.sequence, id);
        let known = match tag.ready {
            ReuseCondition::OnStream { stream, .. } => self.remove_on_stream((stream, pool), key),
            ready if ready.is_ended_by_barrier() => self.by_age.remove(&key).is_some(),
            _ => self.elsewhere.remove(&key).is_some(),
        };
        assert!(known, "the tag {tag:?} of {id:?} is not listed");
        self.blocks_count -= 1;
    }

    fn remove_on_stream(&mut self, place: (StreamId, Pool), key: (u64, BlockId)) -> bool {
        let Some(list) = self.on_stream.get_mut(&place) else { return false };
        let known = list.remove(&key).is_some();
        if list.is_empty() && self.on_stream.len() > STREAMS_COUNT_KEPT_MAX {
            self.on_stream.remove(&place);
        }
        known
    }

    pub(crate) fn mark(&self) -> TagEpoch {
        TagEpoch(self.next_sequence)
    }

    /// Returns the epoch before which no existing tag was made. Checks each stream with tags.
    pub(crate) fn oldest(&self) -> TagEpoch {
        let lists = [&self.by_age, &self.elsewhere].into_iter().chain(self.on_stream.values());
        let oldest = lists.filter_map(|list| list.first_key_value());
        oldest.map(|((age, _), _)| TagEpoch(*age)).min().unwrap_or(self.mark())
    }

    /// Returns the tagged blocks that a barrier frees and whose tag was made before the epoch,
    /// oldest first.
    pub(crate) fn before(&self, mark: TagEpoch) -> Vec<BlockId> {
        let lists = iter::once(&self.by_age).chain(self.on_stream.values());
        let of_list = |list: &'_ ByAge| {
            list.keys()
                .copied()
                .take_while(move |(age, _)| mark.is_behind(*age))
                .collect::<Vec<_>>()
        };
        let mut before: Vec<_> = lists.flat_map(of_list).collect();
        before.sort_unstable();
        before.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the blocks that wait for an event accepted by the predicate, with their conditions,
    /// oldest first; those of other contexts last.
    pub(crate) fn waiting_for(
        &self,
        is_asked: impl Fn(EventId) -> bool,
    ) -> impl Iterator<Item = (BlockId, EventId)> {
        let here = self.by_age.iter().chain(self.on_stream.values().flatten());
        let mut here: Vec<_> = here.map(|(key, event)| (*key, *event)).collect();
        here.sort_unstable();
        let elsewhere = self.elsewhere.iter().map(|(key, event)| (*key, *event));
        let all = here.into_iter().chain(elsewhere);
        all.filter_map(move |((_, id), event)| Some((id, event.filter(|one| is_asked(*one))?)))
    }

    /// Returns the blocks with this condition, among those whose tags were made between these
    /// epochs.
    pub(crate) fn waiting_since(
        &self,
        ready: ReuseCondition,
        made: Range<TagEpoch>,
    ) -> impl Iterator<Item = BlockId> {
        let ages = (made.start.0, BlockId(0))..(made.end.0, BlockId(0));
        let [list, other] = match ready {
            ReuseCondition::OnStream { stream, .. } => {
                [Pool::Small, Pool::Large].map(|pool| self.on_stream.get(&(stream, pool)))
            }
            ready if ready.is_ended_by_barrier() => [Some(&self.by_age), None],
            _ => [Some(&self.elsewhere), None],
        };
        let made = list.into_iter().chain(other).flat_map(move |list| list.range(ages.clone()));
        made.filter(move |(_, event)| **event == ready.event()).map(|(&(_, id), _)| id)
    }

    /// Returns the blocks of a pool that a stream has freed and still uses, oldest first, with
    /// their ages.
    pub(crate) fn of_stream(
        &self,
        stream: StreamId,
        pool: Pool,
    ) -> impl Iterator<Item = (u64, BlockId)> {
        self.on_stream.get(&(stream, pool)).into_iter().flat_map(|list| list.keys().copied())
    }

    /// Returns the blocks of a pool that any stream has freed and still uses, oldest first, with
    /// their ages.
    pub(crate) fn of_any_stream(&self, pool: Pool) -> impl Iterator<Item = (u64, BlockId)> {
        let mut lists = Vec::new();
        let mut oldest = BinaryHeap::new();
        for list in self.on_stream.iter().filter(|((_, of), _)| *of == pool).map(|(_, list)| list) {
            let mut keys = list.keys();
            oldest.extend(keys.next().map(|first| Reverse((*first, lists.len()))));
            lists.push(keys);
        }
        iter::from_fn(move || {
            let mut first = oldest.peek_mut()?;
            let Reverse((key, list)) = *first;
            match lists[list].next() {
                Some(next) => *first = Reverse((*next, list)),
                None => _ = PeekMut::pop(first),
            }
            Some(key)
        })
    }

    pub(crate) fn blocks_count(&self) -> usize {
        self.blocks_count
    }

    /// Returns whether the block is listed as it should be. For `check()`.
    pub(crate) fn holds(&self, id: BlockId, pool: Pool, tag: Tag) -> bool {
        let made = made_at(tag.sequence);
        let listed = self.waiting_since(tag.ready, made).any(|listed| listed == id);
        let on_stream = match tag.ready {
            ReuseCondition::OnStream { stream, .. } => {
                self.of_stream(stream, pool).any(|(_, listed)| listed == id)
            }
            _ => true,
        };
        listed && on_stream
    }
}

/// Returns the epochs around the tag of this age.
pub(crate) fn made_at(sequence: u64) -> Range<TagEpoch> {
    TagEpoch(sequence)..TagEpoch(sequence + 1)
}

/// Returns whether two adjacent freed blocks in these states may become one block.
#[inline]
pub(crate) fn may_coalesce(left: &State, right: &State) -> bool {
    if !rule_holds(Rule::MergeSameTagOnly) {
        return true;
    }
    match (left, right) {
        (State::Free, State::Free) => true,
        (State::Tagged(left), State::Tagged(right)) => match (left.ready, right.ready) {
            // Only parts cut from one block (Note [Own neighbours]).
            (ReuseCondition::OnStream { .. }, ReuseCondition::OnStream { .. }) => {
                left.ready == right.ready
            }
            (ReuseCondition::InPool { stream: left }, ReuseCondition::InPool { stream: right }) => {
                left == right
            }
            _ => false,
        },
        _ => false,
    }
}

/// Merges the other state into this one. If both wait, it is for the same, since the later free.
#[inline]
pub(crate) fn coalesce(state: &mut State, other: &State) {
    match (&mut *state, other) {
        (State::Tagged(own), State::Tagged(tag)) => own.sequence = own.sequence.max(tag.sequence),
        _ => *state = State::Free,
    }
}

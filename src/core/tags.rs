//! The tags of freed blocks, by age: a barrier drops all up to an age, completed events drop those that
//! wait for them. Not by event as well: each free and each request would pay for a list that only a
//! query of the events reads, and a query asks the driver about each.
//!
//! What waits for its private pool is not listed here: no barrier ends that.
//!
//! Ages are numbers given in the order of the frees. That order stands for the order on the
//! device, so the caller frees on one stream in the order in which it recorded the events.

use alloc::collections::BTreeMap;

use crate::block::{State, Tag};
use crate::rules::{Rule, rule_holds};
use crate::types::{BlockId, EventId, Ready};

/// A point between two frees: tags made before it are older. Take it before recording a barrier,
/// so that a free which comes between the recording and its report is not counted as covered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TagMark(u64);

impl TagMark {
    /// Whether the tag of this age was made before.
    pub(crate) fn is_behind(self, sequence: u64) -> bool {
        sequence < self.0 || !rule_holds(Rule::BarrierMark)
    }
}

#[derive(Clone)]
pub(crate) struct Tags {
    next_sequence: u64,
    /// Every tagged block that a barrier frees. A split gives several blocks one age, hence the block in
    /// the key.
    by_age: BTreeMap<(u64, BlockId), Option<EventId>>,
    /// The others.
    elsewhere: BTreeMap<(u64, BlockId), Option<EventId>>,
}

impl Tags {
    pub(crate) fn new() -> Tags {
        Tags { next_sequence: 0, by_age: BTreeMap::new(), elsewhere: BTreeMap::new() }
    }

    /// Gives the tag its age. A block that is free for every request gets none.
    pub(crate) fn make(&mut self, ready: Ready) -> Option<Tag> {
        if ready == Ready::Everywhere {
            return None;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Some(Tag { ready, sequence })
    }

    #[inline(never)]
    pub(crate) fn insert(&mut self, id: BlockId, tag: Tag) {
        self.list_of(tag).insert((tag.sequence, id), tag.ready.event());
    }

    #[inline(never)]
    pub(crate) fn remove(&mut self, id: BlockId, tag: Tag) {
        let known = self.list_of(tag).remove(&(tag.sequence, id));
        assert!(known.is_some(), "the tag {tag:?} of {id:?} is not listed");
    }

    fn list_of(&mut self, tag: Tag) -> &mut BTreeMap<(u64, BlockId), Option<EventId>> {
        if tag.ready.is_ended_by_barrier() { &mut self.by_age } else { &mut self.elsewhere }
    }

    pub(crate) fn mark(&self) -> TagMark {
        TagMark(self.next_sequence)
    }

    /// The oldest tagged block that a barrier frees, if its tag was made before the mark.
    pub(crate) fn oldest_before(&self, mark: TagMark) -> Option<BlockId> {
        let (&(sequence, id), _) = self.by_age.first_key_value()?;
        mark.is_behind(sequence).then_some(id)
    }

    /// The blocks that wait for an event for which this is true, and what each waits for, oldest first;
    /// those of other contexts last.
    pub(crate) fn waiting_for(
        &self,
        is_asked: impl Fn(EventId) -> bool,
    ) -> impl Iterator<Item = (BlockId, EventId)> {
        let all = self.by_age.iter().chain(&self.elsewhere);
        all.filter_map(move |(&(_, id), &event)| Some((id, event.filter(|one| is_asked(*one))?)))
    }

    pub(crate) fn blocks_count(&self) -> usize {
        self.by_age.len() + self.elsewhere.len()
    }

    /// Whether the block is listed as it should be. For `check()`.
    pub(crate) fn holds(&self, id: BlockId, tag: Tag) -> bool {
        let list = if tag.ready.is_ended_by_barrier() { &self.by_age } else { &self.elsewhere };
        list.get(&(tag.sequence, id)) == Some(&tag.ready.event())
    }
}

/// Whether two freed neighbours in these states may become one block.
#[inline]
pub(crate) fn may_coalesce(left: &State, right: &State) -> bool {
    if !rule_holds(Rule::MergeSameTagOnly) {
        return true;
    }
    match (left, right) {
        (State::Free, State::Free) => true,
        (State::Tagged(left), State::Tagged(right)) => match (left.ready, right.ready) {
            // What was cut from one block (Note [Own neighbours]).
            (Ready::OnStream { .. }, Ready::OnStream { .. }) => left.ready == right.ready,
            (Ready::InPool { stream: left }, Ready::InPool { stream: right }) => left == right,
            _ => false,
        },
        _ => false,
    }
}

/// A block in this state coalesces with one in the other. Where both wait, it is for the same, since the later free.
#[inline]
pub(crate) fn coalesce(state: &mut State, other: &State) {
    match (&mut *state, other) {
        (State::Tagged(own), State::Tagged(tag)) => own.sequence = own.sequence.max(tag.sequence),
        _ => *state = State::Free,
    }
}

//! From an allocated block back to a free one: tags, coalescing, and the removal of tags.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::take;
use core::ops::Range;

use crate::allocator::Allocator;
use crate::block::{Block, IdleSpan, OutsideUse, State, Tag};
use crate::tags::{self, TagEpoch};
use crate::types::{BlockId, EventId, ReuseCondition};

/// The work that still uses a block: its own stream may take it before that completes, others only
/// after.
#[derive(Clone, Copy, Debug)]
pub struct Behind(Tag);

/// One wait of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    id: BlockId,
    sequence: u64,
}

impl Behind {
    /// Returns the event that the block waits for.
    pub fn event(&self) -> Option<EventId> {
        self.0.ready.event()
    }

    /// Returns the reuse condition.
    pub fn ready(&self) -> ReuseCondition {
        self.0.ready
    }

    /// Returns the epochs between which its tag was made.
    pub fn made(&self) -> Range<TagEpoch> {
        tags::made_at(self.0.sequence)
    }
}

impl Allocator {
    /// Frees this block. `ready` is the condition under which streams may reuse it.
    ///
    /// Blocks freed on one stream must come in the order in which their events were recorded: where
    /// two of them serve one request, only the event of the later free is kept.
    ///
    /// A block of a private pool waits for that pool, whatever else it waited for. Returns the work
    /// that the block was handed out after.
    pub fn free(&mut self, id: BlockId, ready: ReuseCondition) -> Option<Behind> {
        if ready == ReuseCondition::Everywhere && self.free_plainly(id) {
            return None;
        }
        let is_private = self.blocks.at(id.0).private.is_some();
        // A capture that adopts ordinary memory later finds all work with it complete.
        let used_outside = match is_private && ready != ReuseCondition::Everywhere {
            true => OutsideUse::Unknown,
            false => OutsideUse::None,
        };
        let ready = if is_private { self.ready_if_freed(id, ready) } else { ready };
        self.free_as(id, ready, used_outside)
    }

    #[inline(never)]
    fn free_plainly(&mut self, id: BlockId) -> bool {
        self.free_plain(id).is_some()
    }

    /// Does the same as `free`, with the condition as it is.
    #[inline(always)]
    pub(crate) fn free_as(
        &mut self,
        id: BlockId,
        ready: ReuseCondition,
        used_outside: OutsideUse,
    ) -> Option<Behind> {
        let block = self.blocks.at_mut(id.0);
        assert!(block.state == State::Allocated, "{id:?} is freed but not allocated");
        block.used_outside = used_outside;
        let behind = block.behind.take();
        let segment = block.segment;
        let row = self.segments.at_mut(segment.0);
        row.allocated_count -= 1;
        let may_leave = row.exported_count > 0;
        self.counts.freed(block.pool, block.bytes);
        if self.policy.is_oversize(block.bytes) {
            self.counts.kept.oversize_allocations.decrease(1);
        }
        block.becomes_free(self.clock);
        if ready.is_pending() {
            self.counts.begin_pending(block.pool, block.bytes);
        } else {
            self.counts.is_inactive(block.pool, take(&mut block.requested_bytes));
        }
        block.state = match self.tags.make(ready) {
            None => State::Free,
            Some(tag) => State::Tagged(tag),
        };
        self.retire_if_exported(id);
        self.coalesce_and_insert(id);
        if may_leave {
            self.note_leaving(segment);
        }
        behind.map(Behind)
    }

    /// Records that the caller keeps an event for the pool of this freed block, if it waits for
    /// one: that event is complete after all work outside of the capture that used the block.
    /// Returns whether it does.
    pub fn waits_with_pool_until_events(&mut self, id: BlockId) -> bool {
        let waits = self.waits_with_pool(id);
        if waits {
            self.blocks.at_mut(id.0).used_outside = OutsideUse::UntilEvents;
        }
        waits
    }

    /// Returns whether this allocated block was handed out after pending work of its stream.
    pub fn is_behind(&self, id: BlockId) -> bool {
        self.blocks.get(id.0).is_some_and(|block| block.behind.is_some())
    }

    /// Returns the wait of a freed block, if it has one. It differs from every later wait of this
    /// block, or of another block with its number.
    pub fn wait_of(&self, id: BlockId) -> Option<Waiting> {
        let tag = self.blocks.get(id.0)?.work_tag()?;
        Some(Waiting { id, sequence: tag.sequence })
    }

    /// Returns whether the block still has this wait.
    pub fn waits(&self, waiting: Waiting) -> bool {
        self.wait_of(waiting.id) == Some(waiting)
    }

    /// Records that the wait of the block is complete.
    pub fn wait_is_over(&mut self, waiting: Waiting) {
        if self.waits(waiting) {
            self.drop_tag(waiting.id);
        }
    }

    /// Reduces the wait of the block to the work that it was handed out after.
    pub fn wait_only_behind(&mut self, waiting: Waiting, behind: Behind) {
        if !self.waits(waiting) {
            return;
        }
        self.remove_free(waiting.id);
        // The tag keeps its age: of adjacent blocks of one stream the later event stays.
        let block = self.blocks.at_mut(waiting.id.0);
        block.state = State::Tagged(behind.0);
        block.becomes_free(self.clock);
        self.coalesce_and_insert(waiting.id);
    }

    /// Returns the current epoch, a point between two frees. Take it before recording a barrier.
    pub fn mark(&self) -> TagEpoch {
        self.tags.mark()
    }

    /// Records that the wait of a barrier, recorded after `mark` was taken, is submitted. All later
    /// work of the whole process is ordered after everything in this context that tags made before
    /// the epoch waited for.
    pub fn barrier_passed(&mut self, mark: TagEpoch) {
        for id in self.tags.before(mark) {
            // Others may have grown by it meanwhile, where a rule is broken.
            let waits = self.blocks.get(id.0).and_then(Block::work_tag);
            if waits.is_some() {
                self.drop_tag(id);
            }
        }
    }

    /// Records that these events are complete: blocks that waited for them are free for every
    /// request. Checks each freed block that waits; a caller that knows when the tags were made
    /// calls `wait_completed`.
    pub fn events_completed(&mut self, complete: &[EventId]) {
        let complete: BTreeSet<EventId> = complete.iter().copied().collect();
        let waiting = self.tags.waiting_for(|event| complete.contains(&event));
        let over: Vec<BlockId> = waiting.map(|(id, _)| id).collect();
        over.into_iter().for_each(|id| self.drop_tag(id));
    }

    /// Records that the event of one `ReuseCondition` is complete, where all its tags were made
    /// between these epochs. Checks no other blocks.
    pub fn wait_completed(&mut self, ready: ReuseCondition, made: Range<TagEpoch>) {
        let over: Vec<BlockId> = self.tags.waiting_since(ready, made).collect();
        over.into_iter().for_each(|id| self.drop_tag(id));
    }

    /// Returns whether a freed block has this condition, where all such tags were made between
    /// these epochs.
    pub fn is_waiting(&self, ready: ReuseCondition, made: Range<TagEpoch>) -> bool {
        self.tags.waiting_since(ready, made).next().is_some()
    }

    /// Returns the epoch before which no freed block has begun to wait.
    pub fn oldest_wait(&self) -> TagEpoch {
        self.tags.oldest()
    }

    /// Calls `visit` with the event of every freed block that waits for one, oldest first.
    pub fn events_pending(&self, visit: &mut dyn FnMut(EventId)) {
        self.tags.waiting_for(|_| true).for_each(|(_, event)| visit(event));
    }

    /// Returns whether any freed block has a tag, with an event or without: a barrier would drop
    /// something.
    pub fn has_tags(&self) -> bool {
        self.tags.blocks_count() != 0
    }

    fn drop_tag(&mut self, id: BlockId) {
        self.remove_free(id);
        let block = self.blocks.at_mut(id.0);
        block.state = State::Free;
        block.becomes_free(self.clock);
        let segment = block.segment;
        self.coalesce_and_insert(id);
        self.note_leaving(segment);
    }

    /// Merges a freed block that is in no index with adjacent blocks under the same condition, and
    /// indexes the result.
    pub(crate) fn coalesce_and_insert(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        let (pool, previous, next) = (block.pool, block.previous, block.next);
        if let Some(next) = next.filter(|next| self.may_coalesce(id, *next)) {
            self.remove_free(next);
            self.absorb_next(id);
        }
        match previous.filter(|previous| self.may_coalesce(*previous, id)) {
            Some(previous) => {
                self.remove_free(previous);
                self.absorb_next(previous);
                self.insert_free(previous);
            }
            None => self.insert_free(id),
        }
        self.counts.settle_split(pool);
    }

    #[inline(always)]
    fn may_coalesce(&self, left: BlockId, right: BlockId) -> bool {
        let (left, right) = (self.blocks.at(left.0), self.blocks.at(right.0));
        left.state != State::Allocated
            && right.state != State::Allocated
            && !left.exported
            && !right.exported
            && left.private == right.private
            && tags::may_coalesce(&left.state, &right.state)
    }

    /// Merges the next block into this one, and removes its row.
    #[inline(always)]
    pub(crate) fn absorb_next(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        let next = block.next.expect("the block has a next one");
        let idle_span = if block.expandable { self.idle_span_of_both(id, next) } else { None };
        let absorbed = self.blocks.at(next.0);
        if absorbed.private.is_some() {
            self.leave_private(next);
        }
        let absorbed = self.blocks.at(next.0);
        let Block { address, bytes, next: after, state, freed_at, used_outside, .. } = *absorbed;
        self.blocks.remove(next.0);
        let block = self.blocks.at_mut(id.0);
        assert!(block.end() == address, "{id:?} and {next:?} do not touch");
        tags::coalesce(&mut block.state, &state);
        block.bytes += bytes;
        block.next = after;
        block.freed_at = block.freed_at.max(freed_at);
        block.idle_span = idle_span;
        block.used_outside = block.used_outside.max(used_outside);
        let segment = block.segment;
        self.link_after(id, after, segment);
    }

    /// Memory that was free for long does not become young by an adjacent block: small ones come
    /// and go beside it.
    #[inline(never)]
    fn idle_span_of_both(&self, id: BlockId, next: BlockId) -> Option<IdleSpan> {
        let (left, right) = (self.blocks.at(id.0), self.blocks.at(next.0));
        let (own, other) = (left.longest_idle_span(), right.longest_idle_span());
        let idle_span = if own.bytes() >= other.bytes() { own } else { other };
        (idle_span.freed_at < left.freed_at.max(right.freed_at)).then_some(idle_span)
    }
}

//! The state kept for each block and each segment. The blocks of a segment form a list in address
//! order and tile it:
//!
//! ```text
//!   segment   |<----------------------- bytes ----------------------->|
//!             first --next--> block --next--> block --next--> None
//! ```

use crate::rules::{Rule, rule_holds};
use crate::types::{Address, BlockId, Pool, PrivatePool, Requester, ReuseCondition, SegmentId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub segment: SegmentId,
    pub pool: Pool,
    pub address: Address,
    pub bytes: u64,
    /// The requested bytes of an active block; 0 for any other.
    pub requested_bytes: u64,
    /// The segment's registration number, here because every index key needs it.
    pub registration: u64,
    pub previous: Option<BlockId>,
    pub next: Option<BlockId>,
    pub state: State,
    /// Other processes may have mapped it: once freed, it is *retired*, and never reused.
    pub exported: bool,
    /// Whether it lies in an arena. See Note [Arenas] in arenas.rs.
    pub expandable: bool,
    /// See Note [Private pools] in private.rs.
    pub private: Option<PrivatePool>,
    /// For a freed block of a private pool: the work outside of its capture that may have used it.
    pub used_outside: OutsideUse,
    /// For an allocated block: the end of its stream's earlier use of this memory, if that was not
    /// known to be complete.
    pub behind: Option<Tag>,
    /// The allocator's clock when the last byte of it became free for its next users.
    pub freed_at: u64,
    /// For a free block in an arena that has merged with others: the part that has been free for
    /// longer.
    pub idle_span: Option<IdleSpan>,
}

/// Work outside of its capture that may have used a freed block of a private pool. When two blocks
/// become one, the greater counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum OutsideUse {
    /// There was none, or it was complete.
    None,
    /// It is complete when events are that the caller keeps for the pool.
    UntilEvents,
    /// It may be any work from before the pool's end.
    Unknown,
}

impl OutsideUse {
    pub(crate) fn is_any(self) -> bool {
        self != OutsideUse::None
    }
}

/// A part of a block, and when the last byte of it became free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IdleSpan {
    pub begin: Address,
    pub end: Address,
    pub freed_at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Allocated,
    /// Free for every request.
    Free,
    /// Freed, with a tag that decides which streams may reuse it.
    Tagged(Tag),
}

/// The streams that may take a freed block. Tags are numbered in the order of the frees that made
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    /// Never `ReuseCondition::Everywhere`: such a block has no tag.
    pub ready: ReuseCondition,
    pub sequence: u64,
}

impl IdleSpan {
    pub(crate) fn bytes(&self) -> u64 {
        self.end.0 - self.begin.0
    }
}

impl Block {
    pub(crate) fn end(&self) -> Address {
        Address(self.address.0 + self.bytes)
    }

    /// Marks the whole block as free for its next users.
    pub(crate) fn becomes_free(&mut self, clock: u64) {
        self.freed_at = clock;
        self.idle_span = None;
    }

    /// Returns the longest idle part: the whole block, if no part has been free for longer than the
    /// rest.
    pub(crate) fn longest_idle_span(&self) -> IdleSpan {
        let whole = IdleSpan { begin: self.address, end: self.end(), freed_at: self.freed_at };
        self.idle_span.unwrap_or(whole)
    }

    /// Cuts the block after this many bytes. The remainder, a block of this number, keeps its
    /// state.
    #[inline(always)]
    pub(crate) fn cut<'a>(
        &mut self,
        id: BlockId,
        bytes: u64,
        rest: BlockId,
        place: &'a mut Option<Block>,
    ) -> &'a mut Block {
        assert!(bytes > 0, "a block of nothing");
        assert!(bytes < self.bytes, "{bytes} of {} bytes leave nothing", self.bytes);
        let state = if rule_holds(Rule::SplitInheritsTag) { self.state } else { State::Free };
        let rest_bytes = self.bytes - bytes;
        self.bytes = bytes;
        let next = self.next.replace(rest);
        let rest = place.insert(Block {
            address: self.end(),
            bytes: rest_bytes,
            previous: Some(id),
            next,
            state,
            behind: None,
            ..*self
        });
        if self.idle_span.is_some() {
            self.clip_calm();
            rest.clip_calm();
        }
        rest
    }

    /// Clips the idle span after the block has lost a part.
    pub(crate) fn clip_calm(&mut self) {
        let (begin, end) = (self.address, self.end());
        let Some(idle_span) = self.idle_span else { return };
        let idle_span = IdleSpan {
            begin: idle_span.begin.max(begin),
            end: idle_span.end.min(end),
            ..idle_span
        };
        self.idle_span = (idle_span.begin < idle_span.end).then_some(idle_span);
    }

    /// Returns whether the block is part of a segment of several blocks.
    pub(crate) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// Returns whether the block counts as split. As in PyTorch, free pages of an arena do not,
    /// since they can be released by themselves.
    pub(crate) fn counts_as_split(&self) -> bool {
        self.is_split() && !self.expandable
    }

    pub(crate) fn tag(&self) -> Option<Tag> {
        match self.state {
            State::Tagged(tag) => Some(tag),
            State::Allocated | State::Free => None,
        }
    }

    /// Returns whether the block was freed after it was exported: neither allocated nor free.
    pub(crate) fn is_retired(&self) -> bool {
        self.exported && self.state != State::Allocated
    }

    /// Returns whether the block belongs to no capture, lies in no arena, and is mapped by no other
    /// process, as most blocks.
    #[inline(always)]
    pub(crate) fn is_ordinary(&self) -> bool {
        self.private.is_none() && !self.exported && !self.expandable
    }

    /// Returns whether the block is ordinary and free for every request. See plain.rs.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.state, State::Free) && self.is_ordinary()
    }

    /// Returns whether every request may take the block.
    pub(crate) fn is_free_everywhere(&self) -> bool {
        self.state == State::Free && self.private.is_none() && !self.exported
    }

    /// Returns the tag, if the block waits for work.
    pub(crate) fn work_tag(&self) -> Option<Tag> {
        self.tag().filter(|tag| tag.ready.waits_for_work())
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(&self.state, State::Tagged(tag) if tag.ready.is_pending())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SegmentRow {
    pub base: Address,
    pub bytes: u64,
    pub pool: Pool,
    /// Creation number. Among equally good blocks that of the oldest segment is taken, so that
    /// younger segments empty and can be released.
    pub registration: u64,
    pub requester: Requester,
    pub first: BlockId,
    pub last: BlockId,
    /// Whether it lies in an arena, where its two ends move.
    pub expandable: bool,
    /// The private pool that owns it with all its blocks.
    pub private: Option<PrivatePool>,
    pub allocated_count: u32,
    /// Number of exported blocks, allocated or retired.
    pub exported_count: u32,
    /// Number of blocks of private pools.
    pub private_count: u32,
}

impl SegmentRow {
    /// Returns a segment without blocks.
    pub(crate) fn new(
        base: Address,
        bytes: u64,
        pool: Pool,
        registration: u64,
        requester: Requester,
    ) -> SegmentRow {
        let none = BlockId(u32::MAX);
        SegmentRow {
            base,
            bytes,
            pool,
            registration,
            requester,
            first: none,
            last: none,
            expandable: false,
            private: None,
            allocated_count: 0,
            exported_count: 0,
            private_count: 0,
        }
    }

    pub(crate) fn end(&self) -> Address {
        Address(self.base.0 + self.bytes)
    }
}

//! The types of the interface of this crate: identities, requesters, the conditions for reusing a
//! freed block, and the caller's next step. No behaviour.

use alloc::vec::Vec;

use crate::rules::{Rule, rule_holds};

/// A device address. The core compares and adds addresses, and never dereferences one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Address(pub u64);

/// A stream's permanent number (`cuStreamGetId`), not its handle: handles are reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Returns a number for the caller's own work before this event. No request has it, and no
    /// stream: the driver counts from 1.
    pub const fn of_caller(event: EventId) -> StreamId {
        StreamId(1 << 63 | event.0)
    }
}

/// The caller's number for one recording of one event. Never used for a second recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub u64);

/// A block. Valid while the block is allocated; afterwards the number may name another block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

/// A segment. Valid while the segment is in the allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u32);

/// A private pool: the memory of one capture, for as long as a graph made by it lives. The number
/// is never used for a second one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PrivatePool(pub u64);

/// The kind of ordering of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requester {
    /// `cuMemAlloc`: work on any stream may use the block at once.
    Context,
    /// A stream-ordered allocation: the first use is ordered on this stream.
    Stream(StreamId),
}

/// The condition under which a freed block may be reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReuseCondition {
    /// At once, by every request: all later work is ordered after the block's last use.
    Everywhere,
    /// On `stream` at once, elsewhere when `event` is complete.
    OnStream { stream: StreamId, event: EventId },
    /// Not before `event` is complete.
    After { event: EventId },
    /// Not before `event` of another context is complete. No barrier of this context covers that.
    AfterElsewhere { event: EventId },
    /// Not before the wait of the next barrier is submitted: a pending free without an event.
    NextBarrier,
    /// In a private pool: not before the pool ends, or the capture is known to order the next use
    /// after the last one.
    WithPool,
    /// In a private pool: the capture orders later work of this stream after the last use.
    InPool { stream: StreamId },
}

impl ReuseCondition {
    /// Returns the event whose completion makes the block free for every request.
    pub fn event(self) -> Option<EventId> {
        match self {
            ReuseCondition::OnStream { event, .. }
            | ReuseCondition::After { event }
            | ReuseCondition::AfterElsewhere { event } => Some(event),
            ReuseCondition::Everywhere
            | ReuseCondition::NextBarrier
            | ReuseCondition::WithPool
            | ReuseCondition::InPool { .. } => None,
        }
    }

    /// Returns whether the block waits for work, and not for its pool.
    pub(crate) fn waits_for_work(self) -> bool {
        self == ReuseCondition::NextBarrier || self.event().is_some()
    }

    /// Returns whether a barrier covers the work that the block waits for.
    pub(crate) fn is_ended_by_barrier(self) -> bool {
        let elsewhere = matches!(self, ReuseCondition::AfterElsewhere { .. });
        self.waits_for_work() && (!elsewhere || !rule_holds(Rule::ElsewhereOutlastsBarrier))
    }

    /// Returns whether the block may not be reused at all yet: it is pending free, hence active.
    pub fn is_pending(self) -> bool {
        match self {
            ReuseCondition::After { .. } | ReuseCondition::AfterElsewhere { .. } => true,
            ReuseCondition::NextBarrier | ReuseCondition::WithPool => true,
            ReuseCondition::Everywhere
            | ReuseCondition::OnStream { .. }
            | ReuseCondition::InPool { .. } => false,
        }
    }
}

/// Which of the two pools a segment and its blocks belong to. They never serve each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pool {
    Small,
    Large,
}

/// A block handed to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    pub block: BlockId,
    pub segment: SegmentId,
    pub address: Address,
    /// Bytes of the block, after rounding.
    pub bytes: u64,
    pub requested_bytes: u64,
    /// The event that ends the earlier use. The block's stream may use it before this is complete,
    /// others only afterwards.
    pub behind: Option<EventId>,
}

/// A block whose pending free has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    pub block: BlockId,
    pub address: Address,
    pub requested_bytes: u64,
}

/// A segment that has left the allocator and is to be released to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub id: SegmentId,
    pub base: Address,
    pub bytes: u64,
    /// The events that its free blocks still waited for, each once. All must be complete before the
    /// memory is released.
    pub events: Vec<EventId>,
    /// Other processes may have mapped a part of it.
    pub exported: bool,
}

/// A backed range of addresses of an arena, which is mapped and unmapped as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub base: Address,
    pub bytes: u64,
}

impl Mapping {
    pub fn end(&self) -> Address {
        Address(self.base.0 + self.bytes)
    }
}

/// The caller's next step. The core performs none of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Hand this block to the program.
    Done(Allocation),
    /// Query which pending events are complete, report each one, poll again. With pending frees
    /// that have no event there is nothing to query, but the caller may know that a barrier has
    /// passed.
    QueryEvents,
    /// Reserve a segment of this size, call `reserved` or `reserve_failed`, poll again.
    Reserve {
        bytes: u64,
    },
    /// These segments have left the allocator: release them to the driver, poll again.
    Release(Vec<Segment>),
    /// Map memory at these addresses of an arena, all of it or none, call `mapped` or
    /// `reserve_failed`, poll again.
    Map(Vec<Mapping>),
    /// These mappings have left the allocator: unmap them once the newest barrier has passed, poll
    /// again.
    Unmap(Vec<Mapping>),
    /// Make the stream of the request wait for these events, and call `ordered` or `order_failed`.
    Order(Vec<EventId>),
    OutOfMemory,
}

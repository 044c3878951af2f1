//! One request for memory on its way through the stages of a miss.

use alloc::vec::Vec;

use crate::policy::exact_block_bytes;
use crate::types::{Allocation, Mapping, PrivatePool, Requester};

/// No request is polled more often: each stage asks the caller for at most one thing.
pub const POLLS_COUNT_MAX: u32 = 18;

/// The state of one request. Poll it until `Step::Done` or `Step::OutOfMemory`. A request dropped
/// earlier may hold a block that is then lost to others.
#[derive(Debug)]
pub struct Request {
    pub(crate) requested_bytes: u64,
    pub(crate) requester: Requester,
    /// For a capture: its own memory serves, and no other.
    pub(crate) private: Option<PrivatePool>,
    /// The last stage that was tried. Moves forward, and stays once at most, so every request ends.
    pub(crate) stage: Stage,
    /// The block bytes for which a segment was requested that has not arrived yet.
    pub(crate) awaited_bytes: Option<u64>,
    /// The mappings that were requested for it and have not arrived yet.
    pub(crate) awaited_mappings: Vec<Mapping>,
    /// Whether others took the free blocks it counted on: the next mapping is for this request
    /// alone.
    pub(crate) alone: bool,
    /// Taken out of the segment at its arrival, before another request can see it.
    pub(crate) arrived: Option<Allocation>,
    /// Whether memory in arenas stays where it is mapped.
    pub(crate) keeps_mapped: bool,
    /// The next stage is the last one again.
    repeats: bool,
    polls_count: u32,
}

/// The stages of a miss, in order, until a block is found. Every poll searches the free blocks
/// first, so it finds all that was freed or completed while the caller was away. Not so for a
/// capture: see Note [Polling for a capture] in private.rs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    Search,
    QueryEvents,
    CollectGarbage,
    Reserve,
    UnmapSome,
    ReserveAfterUnmap,
    ReleaseOversize,
    ReserveAfterOversize,
    QueryEventsAgain,
    ReleaseAll,
    UnmapAll,
    ReserveAfterRelease,
    ReserveExact,
    /// Take a block that the policy keeps for others: better than nothing.
    TakeAny,
    /// Take memory that other streams still use, ordered after them. See Note [Behind other
    /// streams].
    Order,
    OutOfMemory,
}

/// The request itself, without the stages that were tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub bytes: u64,
    pub requester: Requester,
    pub private: Option<PrivatePool>,
}

impl Request {
    /// Returns a new request. `bytes` is the program's size, more than 0.
    pub fn new(bytes: u64, requester: Requester) -> Request {
        assert!(bytes > 0, "a request for nothing has no block");
        Request {
            requested_bytes: bytes,
            requester,
            private: None,
            stage: Stage::Search,
            awaited_bytes: None,
            awaited_mappings: Vec::new(),
            alone: false,
            keeps_mapped: false,
            repeats: false,
            arrived: None,
            polls_count: 0,
        }
    }

    /// Returns a new request for an open private pool.
    pub fn in_pool(bytes: u64, requester: Requester, pool: PrivatePool) -> Request {
        Request { private: Some(pool), ..Request::new(bytes, requester) }
    }

    /// Returns the same request from its beginning.
    pub fn again(&self) -> Request {
        Request { private: self.private, ..Request::new(self.requested_bytes, self.requester) }
    }

    #[inline(always)]
    pub(crate) fn wanted(&self) -> Wanted {
        let Request { requested_bytes: bytes, requester, private, .. } = *self;
        Wanted { bytes, requester, private }
    }

    /// Sets whether memory in arenas stays where it is mapped. Such memory can be moved only when
    /// the work before its free is complete, which a request may not be able to wait for.
    pub fn keep_mapped(&mut self, keeps: bool) {
        self.keeps_mapped = keeps;
    }

    pub fn private(&self) -> Option<PrivatePool> {
        self.private
    }

    pub fn bytes(&self) -> u64 {
        self.requested_bytes
    }

    pub fn requester(&self) -> Requester {
        self.requester
    }

    /// Returns the block that came with new memory; the next poll returns it.
    pub fn arrived(&self) -> Option<Allocation> {
        self.arrived
    }

    /// Counts a poll. Returns `true` for the first one.
    pub(crate) fn count_poll(&mut self) -> bool {
        self.polls_count += 1;
        assert!(self.polls_count <= POLLS_COUNT_MAX, "polled too often: {self:?}");
        self.polls_count == 1
    }

    /// Returns whether all free memory has been released for it.
    pub(crate) fn has_released_all(&self) -> bool {
        self.stage >= Stage::ReserveAfterRelease
    }

    /// Returns whether a segment of `bytes` is the last that the request asks for: all free memory
    /// has been released for it, and no smaller segment would serve it.
    pub fn asks_last_for(&self, bytes: u64) -> bool {
        self.has_released_all() && bytes <= exact_block_bytes(self.requested_bytes)
    }

    pub(crate) fn next_stage(&mut self) -> Stage {
        if !core::mem::take(&mut self.repeats) {
            self.stage = self.stage.next();
        }
        self.stage
    }

    /// Repeats the last stage, at most once for a request.
    pub(crate) fn repeat_stage(&mut self) {
        self.repeats = true;
    }

    pub(crate) fn skip_to(&mut self, stage: Stage) {
        assert!(stage > self.stage, "{stage:?} is not after {:?}", self.stage);
        self.stage = stage;
    }
}

impl Stage {
    pub(crate) fn next(self) -> Stage {
        match self {
            Stage::Search => Stage::QueryEvents,
            Stage::QueryEvents => Stage::CollectGarbage,
            Stage::CollectGarbage => Stage::Reserve,
            Stage::Reserve => Stage::UnmapSome,
            Stage::UnmapSome => Stage::ReserveAfterUnmap,
            Stage::ReserveAfterUnmap => Stage::ReleaseOversize,
            Stage::ReleaseOversize => Stage::ReserveAfterOversize,
            Stage::ReserveAfterOversize => Stage::QueryEventsAgain,
            Stage::QueryEventsAgain => Stage::ReleaseAll,
            Stage::ReleaseAll => Stage::UnmapAll,
            Stage::UnmapAll => Stage::ReserveAfterRelease,
            Stage::ReserveAfterRelease => Stage::ReserveExact,
            Stage::ReserveExact => Stage::TakeAny,
            Stage::TakeAny => Stage::Order,
            Stage::Order | Stage::OutOfMemory => Stage::OutOfMemory,
        }
    }
}

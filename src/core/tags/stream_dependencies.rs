//! Memory that streams still use, for a request that is ordered after that use.
//!
//! Note [Own neighbours]. A block that a stream has freed is available to that stream at once, and
//! waits for its own event for others. If merged, the earlier block would wait for the later event
//! and become reusable later than in the driver. So adjacent blocks of a stream become one only for
//! a request of that stream which none of them serves alone.
//!
//! Note [Behind other streams]. A block that a stream has freed is free for every request when an
//! event is complete. A stream-ordered request that finds no other memory may have it before that:
//! its first use comes in the order of its stream, so it is enough that this stream waits for the
//! events. The driver does the same (`cudaMemPoolReuseAllowInternalDependencies`), and only where
//! the device has no more memory.
//!
//! Adjacent blocks serve together, whichever streams they wait for. Blocks that may not be reused
//! at all yet stay: the caller knows better whether their work is complete.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::iter;

use crate::allocator::Allocator;
use crate::block::{Block, State, Tag};
use crate::policy::exact_block_bytes;
use crate::request::Request;
use crate::rules::{Rule, rule_holds};
use crate::types::{
    Allocation, BlockId, EventId, PrivatePool, Requester, ReuseCondition, SegmentId, Step, StreamId,
};

/// Adjacent blocks that together are large enough.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Neighbours {
    pub first: BlockId,
    pub count: usize,
    pub bytes: u64,
    /// The sequence number of the youngest free: blocks freed first complete first.
    pub sequence: u64,
}

impl Allocator {
    /// Serves the request, whose stream now waits for the events of `Step::Order`. `event` was
    /// recorded there after that wait. Call it in the order of the frees on that stream.
    pub fn ordered(&mut self, request: &mut Request, event: EventId) -> Allocation {
        let mut allocation = request.arrived.take().expect("the request asked for an order");
        let Requester::Stream(stream) = request.requester else { unreachable!("it has a stream") };
        allocation.behind = Some(event);
        let tag = self.tags.make(ReuseCondition::OnStream { stream, event });
        self.blocks.at_mut(allocation.block.0).behind = tag;
        allocation
    }

    /// Records that work of the caller itself uses this allocated block until `event`. If the block
    /// was handed out after a stream, the caller has recorded the event there, after that work; if
    /// it was handed out after none, the event may be on any stream. Returns the previous event, or
    /// `None` if the block was ordered after none.
    pub fn is_now_behind(&mut self, id: BlockId, event: EventId) -> Option<EventId> {
        let before = self.blocks.at(id.0).behind.map(|tag| tag.ready);
        let ready = match before {
            Some(ReuseCondition::OnStream { stream, .. }) => {
                ReuseCondition::OnStream { stream, event }
            }
            _ => ReuseCondition::OnStream { stream: StreamId::of_caller(event), event },
        };
        self.blocks.at_mut(id.0).behind = self.tags.make(ready);
        before?.event()
    }

    /// Returns the bytes of blocks that streams have freed and still use, and of free blocks
    /// adjacent to them.
    pub fn freed_on_streams_bytes(&self) -> u64 {
        let segments = self.segments.iter().filter(|(_, segment)| segment.private.is_none());
        let blocks = segments.flat_map(|(_, segment)| self.blocks_from(segment.first));
        let blocks =
            blocks.map(|id| self.blocks.at(id.0)).filter(|block| may_be_ordered(block, None));
        blocks.map(|block| block.bytes).sum()
    }

    /// Records that the stream could not be made to wait: the next barrier will do.
    pub fn order_failed(&mut self, request: &mut Request) {
        let allocation = request.arrived.take().expect("the request asked for an order");
        self.free(allocation.block, ReuseCondition::NextBarrier);
    }

    /// Merges blocks that the stream of the request has freed, and free blocks adjacent to them,
    /// into one block for it, in no index.
    #[cold]
    pub(crate) fn join_own(
        &mut self,
        requester: Requester,
        private: Option<PrivatePool>,
        block_bytes: u64,
    ) -> Option<BlockId> {
        let stream = stream_of(requester, private)?;
        let window = self.own_window(stream, block_bytes)?;
        let (id, tags) = self.join_window(&window, block_bytes);
        // On one stream the later event includes the earlier.
        let last = match rule_holds(Rule::LaterEventStays) {
            true => tags.into_iter().max_by_key(|tag| tag.sequence),
            false => tags.into_iter().min_by_key(|tag| tag.sequence),
        };
        self.blocks.at_mut(id.0).state = last.map_or(State::Free, State::Tagged);
        Some(id)
    }

    /// Returns the best window of blocks that this stream has freed.
    pub(crate) fn own_window(&self, stream: StreamId, block_bytes: u64) -> Option<Neighbours> {
        let tagged = self.tags.of_stream(stream, self.policy.pool_of(block_bytes));
        self.oldest_window(tagged, block_bytes, Some(stream))
    }

    /// Returns the best window of blocks that this stream has freed, or any stream if it is `None`.
    /// `tagged` are the blocks with such tags, oldest first. Each window holds one of them, since
    /// free blocks for every request are never adjacent to each other. So no segment is searched
    /// whose oldest block is younger than the best so far, and none twice: the time grows with the
    /// blocks only where those freed first lie between others that are in use.
    fn oldest_window(
        &self,
        tagged: impl Iterator<Item = (u64, BlockId)>,
        block_bytes: u64,
        stream: Option<StreamId>,
    ) -> Option<Neighbours> {
        // A single block of the stream itself was tried before.
        let count_min = if stream.is_some() { 2 } else { 1 };
        let is_spared = |segment| {
            stream.is_some_and(|stream| self.is_spared_if_whole(segment, block_bytes, stream))
        };
        let mut seen = BTreeSet::new();
        let mut best: Option<(Neighbours, SegmentId)> = None;
        for (sequence, id) in tagged {
            if best.as_ref().is_some_and(|(best, _)| best.sequence < sequence) {
                break;
            }
            let block = self.blocks.at(id.0);
            let segment = block.segment;
            if !may_be_ordered(block, stream) || !seen.insert(segment) || is_spared(segment) {
                continue;
            }
            let window = self.window(iter::once(segment), block_bytes, stream, count_min);
            let found = window.map(|window| (window, segment));
            let rank = |(window, segment): &(Neighbours, SegmentId)| {
                (window.sequence, window.bytes, *segment)
            };
            best = best.into_iter().chain(found).min_by_key(rank);
        }
        best.map(|(window, _)| window)
    }

    pub(crate) fn order(&mut self, request: &mut Request, block_bytes: u64) -> Option<Step> {
        stream_of(request.requester, request.private)?;
        if !rule_holds(Rule::StreamTakesMemoryOfOthers) {
            return None;
        }
        let exact_bytes = exact_block_bytes(request.requested_bytes);
        let exact_bytes = Some(exact_bytes).filter(|bytes| *bytes < block_bytes);
        let (window, block_bytes) = [Some(block_bytes), exact_bytes]
            .into_iter()
            .flatten()
            .find_map(|bytes| Some((self.window_anywhere(bytes)?, bytes)))?;
        let (id, tags) = self.join_window(&window, block_bytes);
        let mut events: Vec<EventId> =
            tags.into_iter().filter_map(|tag| tag.ready.event()).collect();
        events.sort_unstable();
        events.dedup();
        let taken = self.take(id, block_bytes, request.requested_bytes, true);
        if events.is_empty() {
            return Some(Step::Done(taken));
        }
        request.arrived = Some(taken);
        Some(Step::Order(events))
    }

    pub(crate) fn window_anywhere(&self, block_bytes: u64) -> Option<Neighbours> {
        let pool = self.policy.pool_of(block_bytes);
        let alone = self.index(pool, None).everywhere().best(block_bytes);
        if !alone.is_some_and(|(rank, _)| self.policy.fits(rank.bytes, block_bytes)) {
            return self.oldest_window(self.tags.of_any_stream(pool), block_bytes, None);
        }
        // A block without a tag is large enough, but was spared.
        let of_pool = self.segments.iter().filter(|(_, segment)| segment.pool == pool);
        self.window(of_pool.map(|(number, _)| SegmentId(number)), block_bytes, None, 1)
    }

    /// Returns whether all of this segment is free for the stream, and should stay whole.
    pub(crate) fn is_spared_if_whole(
        &self,
        id: SegmentId,
        block_bytes: u64,
        stream: StreamId,
    ) -> bool {
        let segment = self.segments.at(id.0);
        let mut blocks = self.blocks_from(segment.first).map(|id| self.blocks.at(id.0));
        self.is_choosy(block_bytes)
            && !segment.expandable
            && blocks.all(|block| may_be_ordered(block, Some(stream)))
            && self.is_cut_spared(segment.bytes, block_bytes)
    }

    /// Returns the best window of at least this many blocks in one of these segments, freed by this
    /// stream, or by any stream if it is `None`.
    fn window(
        &self,
        segments: impl Iterator<Item = SegmentId>,
        block_bytes: u64,
        stream: Option<StreamId>,
        count_min: usize,
    ) -> Option<Neighbours> {
        let segments = segments.map(|id| self.segments.at(id.0));
        let segments =
            segments.filter(|segment| segment.private.is_none() && segment.bytes >= block_bytes);
        let rank = |window: &Neighbours| (window.sequence, window.bytes);
        let mut best: Option<Neighbours> = None;
        let mut youngest = VecDeque::new();
        for segment in segments {
            self.windows(segment.first, block_bytes, stream, &mut youngest, |window| {
                if window.count >= count_min
                    && self.policy.fits(window.bytes, block_bytes)
                    && best.as_ref().is_none_or(|best| rank(&window) < rank(best))
                {
                    best = Some(window);
                }
            });
        }
        best
    }

    /// Calls `visit` with the shortest window that ends with each block of a segment. `youngest` is
    /// a buffer.
    fn windows(
        &self,
        first: BlockId,
        block_bytes: u64,
        stream: Option<StreamId>,
        youngest: &mut VecDeque<(BlockId, u64)>,
        mut visit: impl FnMut(Neighbours),
    ) {
        // The run of blocks up to the current one.
        let (mut begin, mut count, mut bytes) = (first, 0, 0);
        // The blocks of the run with a younger tag than any after them: the first has the youngest.
        youngest.clear();
        for id in self.blocks_from(first) {
            let block = self.blocks.at(id.0);
            if !may_be_ordered(block, stream) {
                youngest.clear();
                (count, bytes) = (0, 0);
                continue;
            }
            if count == 0 {
                begin = id;
            }
            count += 1;
            bytes += block.bytes;
            if let Some(tag) = block.tag() {
                while youngest.pop_back_if(|(_, sequence)| *sequence <= tag.sequence).is_some() {}
                youngest.push_back((id, tag.sequence));
            }
            if bytes < block_bytes {
                continue;
            }
            loop {
                let spare = self.blocks.at(begin.0);
                if bytes - spare.bytes < block_bytes {
                    break;
                }
                bytes -= spare.bytes;
                count -= 1;
                let _ = youngest.pop_front_if(|(id, _)| *id == begin);
                begin = spare.next.expect("the run has more blocks");
            }
            let sequence = youngest.front().map_or(0, |(_, sequence)| *sequence);
            visit(Neighbours { first: begin, count, bytes, sequence });
        }
    }

    /// Makes one free block of them, in no index, and returns what they waited for. The remainder
    /// of the first one, which the window needs, still waits for what that block waited for.
    fn join_window(&mut self, window: &Neighbours, block_bytes: u64) -> (BlockId, Vec<Tag>) {
        let ids: Vec<BlockId> = self.blocks_from(window.first).take(window.count).collect();
        let mut tags = Vec::new();
        for id in &ids {
            self.remove_free(*id);
            tags.extend(self.blocks.at(id.0).tag());
        }
        let mut joined = window.first;
        let pool = self.blocks.at(joined.0).pool;
        if self.policy.splits(pool, window.bytes, block_bytes) {
            joined = self.split(window.first, window.bytes - block_bytes);
            self.insert_free(window.first);
        }
        for _ in 1..ids.len() {
            self.absorb_next(joined);
        }
        // The caller decides which requests it is free for.
        self.blocks.at_mut(joined.0).state = State::Free;
        (joined, tags)
    }
}

/// Returns the stream of the request, or `None` if it has none or is for a private pool.
fn stream_of(requester: Requester, private: Option<PrivatePool>) -> Option<StreamId> {
    match requester {
        Requester::Stream(stream) if private.is_none() => Some(stream),
        _ => None,
    }
}

/// Returns whether a request may be ordered after the free of this block by `stream`, or by any
/// stream if it is `None`.
pub(crate) fn may_be_ordered(block: &Block, stream: Option<StreamId>) -> bool {
    // Blocks attached to a capture lie beside those that every request may take.
    if block.private.is_some() {
        return false;
    }
    let freed = match (block.state, stream) {
        (State::Allocated, _) => false,
        (State::Free, _) => true,
        (State::Tagged(Tag { ready: ReuseCondition::OnStream { stream: by, .. }, .. }), stream) => {
            stream.is_none_or(|stream| stream == by)
        }
        (State::Tagged(_), _) => false,
    };
    freed && !block.exported
}

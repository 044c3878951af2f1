//! Memory that other streams still use, for a request that can be put behind them.
//!
//! Note [Behind other streams]. What a stream has freed is its own at once, and free for every request when
//! an event is complete. A stream-ordered request that finds no other memory may have it before that: its first
//! use comes in the order of its stream, so it is enough that this stream waits for the events. Natively
//! the driver does the same (`cudaMemPoolReuseAllowInternalDependencies`), and only where the device has no
//! more memory.
//!
//! Neighbours serve together, whichever streams they wait for. Blocks that may not be reused at all yet
//! stay: the caller knows better whether their work is over.

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::{Block, State};
use crate::policy::exact_block_bytes;
use crate::request::Request;
use crate::rules::{Rule, rule_holds};
use crate::types::{Allocation, BlockId, EventId, Ready, Requester, Step};

/// Neighbours that together are large enough.
struct Neighbours {
    first: BlockId,
    count: usize,
    bytes: u64,
    /// Of the youngest free: what was freed first is over first.
    sequence: u64,
}

impl Allocator {
    /// The stream of the request waits for the events of `Step::Order`; this one was recorded there behind
    /// that. In the order of the frees on that stream, as those themselves.
    pub fn ordered(&mut self, request: &mut Request, event: EventId) -> Allocation {
        let mut allocation = request.arrived.take().expect("the request asked for an order");
        let Requester::Stream(stream) = request.requester else { unreachable!("it has a stream") };
        allocation.behind = Some(event);
        let tag = self.tags.make(Ready::OnStream { stream, event });
        self.blocks.at_mut(allocation.block.0).behind = tag;
        allocation
    }

    /// What streams have freed and still use, and what is free beside it.
    pub fn freed_on_streams_bytes(&self) -> u64 {
        let segments = self.segments.iter().filter(|(_, segment)| segment.private.is_none());
        let blocks = segments.flat_map(|(_, segment)| self.blocks_from(segment.first));
        let blocks = blocks.map(|id| self.blocks.at(id.0)).filter(|block| may_be_ordered(block));
        blocks.map(|block| block.bytes).sum()
    }

    /// The stream could not be made to wait: the next barrier will do.
    pub fn order_failed(&mut self, request: &mut Request) {
        let allocation = request.arrived.take().expect("the request asked for an order");
        self.free(allocation.block, Ready::NextBarrier);
    }

    pub(crate) fn order(&mut self, request: &mut Request, block_bytes: u64) -> Option<Step> {
        let streams =
            matches!(request.requester, Requester::Stream(_)) && request.private.is_none();
        if !streams || !rule_holds(Rule::StreamComesBehindOthers) {
            return None;
        }
        let exact_bytes = exact_block_bytes(request.requested_bytes).min(block_bytes);
        let (window, block_bytes) = [block_bytes, exact_bytes]
            .into_iter()
            .find_map(|bytes| Some((self.window(bytes)?, bytes)))?;
        let (id, events) = self.join_window(&window, block_bytes);
        let taken = self.take(id, block_bytes, request.requested_bytes, true);
        if events.is_empty() {
            return Some(Step::Done(taken));
        }
        request.arrived = Some(taken);
        Some(Step::Order(events))
    }

    fn window(&self, block_bytes: u64) -> Option<Neighbours> {
        let pool = self.policy.pool_of(block_bytes);
        let segments = self.segments.iter().filter(|(_, segment)| {
            segment.pool == pool && segment.private.is_none() && segment.bytes >= block_bytes
        });
        let windows = segments.flat_map(|(_, segment)| self.windows(segment.first, block_bytes));
        let fitting = windows.filter(|window| self.policy.fits(window.bytes, block_bytes));
        fitting.min_by_key(|window| (window.sequence, window.bytes))
    }

    /// The shortest one that ends with each block of a segment.
    fn windows(&self, first: BlockId, block_bytes: u64) -> Vec<Neighbours> {
        let mut windows = Vec::new();
        let mut run: Vec<BlockId> = Vec::new();
        let mut bytes = 0;
        for id in self.blocks_from(first) {
            let block = self.blocks.at(id.0);
            if !may_be_ordered(block) {
                run.clear();
                bytes = 0;
                continue;
            }
            run.push(id);
            bytes += block.bytes;
            let mut spare = 0;
            while bytes - self.blocks.at(run[spare].0).bytes >= block_bytes {
                bytes -= self.blocks.at(run[spare].0).bytes;
                spare += 1;
            }
            run.drain(..spare);
            if bytes >= block_bytes {
                let tags = run.iter().filter_map(|id| self.blocks.at(id.0).tag());
                let sequence = tags.map(|tag| tag.sequence).max().unwrap_or(0);
                windows.push(Neighbours { first: run[0], count: run.len(), bytes, sequence });
            }
        }
        windows
    }

    /// Makes one block of them, in no index, and returns what it waits for. What is left of the first one,
    /// without which they would not do, goes on to wait for what that waited for.
    fn join_window(&mut self, window: &Neighbours, block_bytes: u64) -> (BlockId, Vec<EventId>) {
        let ids: Vec<BlockId> = self.blocks_from(window.first).take(window.count).collect();
        let mut events = Vec::new();
        for id in &ids {
            self.remove_free(*id);
            events.extend(self.blocks.at(id.0).tag().and_then(|tag| tag.ready.event()));
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
        // The events say for which stream it is free.
        self.blocks.at_mut(joined.0).state = State::Free;
        events.sort_unstable();
        events.dedup();
        (joined, events)
    }
}

fn may_be_ordered(block: &Block) -> bool {
    // Blocks that a capture has joined lie beside those that every request may take.
    if block.private.is_some() {
        return false;
    }
    let on_stream = |ready| matches!(ready, Ready::OnStream { .. });
    let freed = match block.state {
        State::Allocated => false,
        State::Free => true,
        State::Tagged(tag) => on_stream(tag.ready),
    };
    freed && !block.exported
}

//! Each search with an index finds the same as a walk over everything, block by block. The searches
//! cover the stream's own adjacent blocks (`behind`) and places in arenas (`runs`; the walk for
//! them is still there, in `holes`).

extern crate std;

use std::collections::BTreeSet;
use std::vec::Vec;

use crate::allocator::Allocator;
use crate::policy::{MIB, Policy};
use crate::request::Request;
use crate::tags::stream_dependencies::{Neighbours, may_be_ordered};
use crate::types::{
    Address, BlockId, EventId, Pool, Requester, ReuseCondition, SegmentId, Step, StreamId,
};

#[path = "../allocator/random.rs"]
mod random;

use random::Random;

use crate::order::tests::tier;

const ARENA_BYTES: u64 = 4 << 30;

impl Allocator {
    /// Finds the same as `own_window` by a walk.
    fn own_window_by_walk(&self, stream: StreamId, block_bytes: u64) -> Option<Neighbours> {
        let pool = self.policy.pool_of(block_bytes);
        let own = self.index(pool, None).on_stream(stream)?;
        let segments: BTreeSet<SegmentId> =
            own.at_least(0).map(|(_, id)| self.blocks.at(id.0).segment).collect();
        let cut = |id: &SegmentId| !self.is_spared_if_whole(*id, block_bytes, stream);
        let segments: Vec<SegmentId> = segments.into_iter().filter(cut).collect();
        self.window_by_walk(&segments, block_bytes, Some(stream), 2)
    }

    /// Finds the same as `window_anywhere` by a walk.
    fn window_anywhere_by_walk(&self, block_bytes: u64) -> Option<Neighbours> {
        let pool = self.policy.pool_of(block_bytes);
        let of_pool = self.segments.iter().filter(|(_, segment)| segment.pool == pool);
        let segments: Vec<SegmentId> = of_pool.map(|(number, _)| SegmentId(number)).collect();
        self.window_by_walk(&segments, block_bytes, None, 1)
    }

    fn window_by_walk(
        &self,
        segments: &[SegmentId],
        block_bytes: u64,
        stream: Option<StreamId>,
        count_min: usize,
    ) -> Option<Neighbours> {
        let mut windows = Vec::new();
        for segment in segments {
            let segment = self.segments.at(segment.0);
            if segment.private.is_some() || segment.bytes < block_bytes {
                continue;
            }
            let blocks: Vec<BlockId> = self.blocks_from(segment.first).collect();
            for last in 0..blocks.len() {
                windows.extend(self.shortest_to(&blocks[..=last], block_bytes, stream));
            }
        }
        let fits = |window: &Neighbours| {
            window.count >= count_min && self.policy.fits(window.bytes, block_bytes)
        };
        windows.into_iter().filter(fits).min_by_key(|window| (window.sequence, window.bytes))
    }

    /// Returns the shortest window that ends with the last of these blocks.
    fn shortest_to(
        &self,
        blocks: &[BlockId],
        block_bytes: u64,
        stream: Option<StreamId>,
    ) -> Option<Neighbours> {
        let (mut bytes, mut sequence) = (0, 0);
        for (count, id) in (1..).zip(blocks.iter().rev()) {
            let block = self.blocks.at(id.0);
            if !may_be_ordered(block, stream) {
                return None;
            }
            bytes += block.bytes;
            sequence = block.tag().map_or(sequence, |tag| tag.sequence.max(sequence));
            if bytes >= block_bytes {
                return Some(Neighbours { first: *id, count, bytes, sequence });
            }
        }
        None
    }

    /// Checks that every search finds the same as the walk.
    fn judge(&mut self, random: &mut Random) {
        self.look_at_changes();
        for _ in 0..4 {
            let bytes = size(random).next_multiple_of(512);
            let stream = StreamId(random.below(3));
            assert_eq!(self.own_window(stream, bytes), self.own_window_by_walk(stream, bytes));
            assert_eq!(self.window_anywhere(bytes), self.window_anywhere_by_walk(bytes));
            for arena in &self.arenas.list {
                let found = self.place_by_shape(arena, bytes);
                let walked = self.place_in(arena, bytes, false);
                assert_eq!(found, walked, "{bytes} in {arena:x?}");
            }
        }
    }
}

fn size(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 512 + random.below(4 * 1024),
        1 => 512 + random.below(MIB),
        2 => MIB + random.below(9 * MIB),
        _ => 2 * MIB * (1 + random.below(14)),
    }
}

/// Serves a request from a driver with limited memory.
fn served(
    allocator: &mut Allocator,
    bytes: u64,
    requester: Requester,
    next: &mut u64,
) -> Option<BlockId> {
    let mut request = Request::new(bytes, requester);
    loop {
        let short = allocator.reserved_bytes() > 600 * MIB;
        match allocator.poll(&mut request) {
            Step::Done(allocation) => return Some(allocation.block),
            Step::Reserve { .. } | Step::Map(_) if short => allocator.reserve_failed(&mut request),
            Step::Reserve { bytes } => {
                *next += bytes + 2 * MIB;
                allocator.reserved(&mut request, Address(*next - bytes), bytes);
            }
            Step::Map(_) => allocator.mapped(&mut request),
            Step::Order(_) => {
                allocator.order_failed(&mut request);
                return None;
            }
            Step::OutOfMemory => return None,
            Step::Release(_) | Step::Unmap(_) | Step::QueryEvents => {}
        }
    }
}

fn run(seed: u64, expandable: bool) {
    let mut random = Random::new(seed);
    let mut allocator =
        Allocator::new(Policy { expandable_segments: expandable, ..Policy::default() });
    if expandable {
        for (number, pool) in [Pool::Small, Pool::Large, Pool::Large].into_iter().enumerate() {
            let base = Address((1 << 40) + number as u64 * ARENA_BYTES);
            allocator.add_arena(pool, base, ARENA_BYTES);
        }
    }
    let (mut live, mut next, mut event) = (Vec::new(), 1 << 44, 0);
    let few = random.below(2) == 0;
    for _ in 0..120 {
        match random.below(12) {
            0..5 => {
                let on_stream = |number| Requester::Stream(StreamId(number));
                let requester =
                    random.pick(&[Requester::Context, on_stream(0), on_stream(1), on_stream(2)]);
                let bytes = if few { 4096 } else { size(&mut random) };
                live.extend(served(&mut allocator, bytes, requester, &mut next));
            }
            5..10 if !live.is_empty() => {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                // Several frees may share an event.
                event += random.below(3).min(1);
                let (stream, event) = (StreamId(random.below(3)), EventId(event));
                let ready = match random.below(6) {
                    0 => ReuseCondition::Everywhere,
                    1 => ReuseCondition::NextBarrier,
                    _ => ReuseCondition::OnStream { stream, event },
                };
                allocator.free(block, ready);
            }
            10 if random.below(4) == 0 => {
                let mark = allocator.mark();
                allocator.barrier_passed(mark);
            }
            11 if expandable => _ = allocator.unmap_free(),
            11 => _ = allocator.release_free(),
            _ => allocator.events_completed(&[EventId(random.below(event + 1))]),
        }
        allocator.judge(&mut random);
    }
    allocator.check();
}

#[test]
fn searches_find_what_walks_find() {
    for seed in 0..tier::count(300, 20_000) {
        run(seed, seed % 2 == 0);
    }
}

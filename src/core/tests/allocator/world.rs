//! The allocator with its surroundings in the product: a driver with limited memory, events that
//! complete at some time, requests that are in flight together, and the oracle.

#[path = "world/captures.rs"]
mod captures;
#[path = "world/idle.rs"]
mod idle;
#[path = "world/requests.rs"]
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocation, Allocator, BlockId, BlockView, EventId, IdleEpoch, Mapping, Policy,
    PrivatePool, Request, Requester, ReuseCondition, Segment, Step, StreamId, TagEpoch,
};

use crate::behind::Assumed;
use crate::count::Counted;
use crate::driver::{ARENA_BYTES, ARENAS_BASE, Driver};
use crate::model::Model;
use crate::{naive, windows};

#[derive(Clone)]
pub struct World {
    pub allocator: Allocator,
    pub model: Model,
    pub driver: Driver,
    /// Whether to check the invariants and best fit as well, or the oracle alone.
    pub judges_all: bool,
    /// Events that are complete on the device, but not reported yet.
    finished: BTreeSet<EventId>,
    /// Events in the order of recording: on one stream they complete in this order.
    pub recorded: Vec<(StreamId, EventId)>,
    next_event: u64,
    /// Conditions of the blocks that wait for each event, and the epochs between which they were
    /// made.
    pub made: BTreeMap<EventId, Vec<(ReuseCondition, Range<TagEpoch>)>>,
    /// Private pools, and whether their graph is gone.
    pub pools: Vec<(PrivatePool, bool)>,
    pools_count: u64,
    /// Pools whose capture has ended.
    pub captured: Vec<PrivatePool>,
    /// Pools for which a block was freed that work outside of them may still use.
    used_outside: BTreeSet<PrivatePool>,
    /// Segments that left because of exported blocks, for drawings.
    pub retired: Vec<Segment>,
    /// Events after which a stream was ordered for the request in progress.
    pub behind: Option<Vec<EventId>>,
    /// Whether memory in arenas arrives only when the caller calls `answer` with these mappings.
    pub maps_late: bool,
    pub late: Option<Vec<Mapping>>,
    /// All mappings that are to arrive so.
    arriving: Vec<Mapping>,
    /// Whether ordering a stream after others fails.
    pub orders_fail: bool,
    /// Time of the caller's last pass.
    passed: Option<IdleEpoch>,
    pub assumed: Vec<Assumed>,
    /// Number of releases: one call for adjacent mappings, or one for each mapping.
    gone_counts: [u64; 2],
    counted: Counted,
}

/// A step that the allocator asked for while it served one request, with the driver's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    QueryEvents,
    Reserve { bytes: u64, granted: bool },
    Release(Vec<Segment>),
    Map { bytes: u64, granted: bool },
    Unmap(Vec<Mapping>),
    Order(Vec<EventId>),
    OutOfMemory,
}

#[derive(Clone, Copy)]
pub struct Mark {
    tags: TagEpoch,
    frees_count: u64,
}

/// A moment, for memory that is idle since then.
#[derive(Clone, Copy)]
pub struct Moment {
    mark: IdleEpoch,
    touches_count: usize,
}

impl World {
    pub fn new(policy: Policy, capacity_bytes: u64) -> World {
        let expandable = policy.expandable_segments;
        let mut allocator = Allocator::new(policy);
        if expandable {
            for (number, pool) in windows::ARENAS.into_iter().enumerate() {
                let base = Address(ARENAS_BASE + number as u64 * ARENA_BYTES);
                allocator.add_arena(pool, base, ARENA_BYTES);
            }
        }
        World {
            allocator,
            model: Model::default(),
            driver: Driver { capacity_bytes, segments: BTreeMap::new(), mappings: BTreeMap::new() },
            judges_all: true,
            finished: BTreeSet::new(),
            recorded: Vec::new(),
            next_event: 0,
            made: BTreeMap::new(),
            pools: Vec::new(),
            pools_count: 0,
            captured: Vec::new(),
            used_outside: BTreeSet::new(),
            retired: Vec::new(),
            behind: None,
            maps_late: false,
            late: None,
            arriving: Vec::new(),
            orders_fail: false,
            passed: None,
            assumed: Vec::new(),
            gone_counts: [0; 2],
            counted: Counted::default(),
        }
    }

    pub fn check(&self) {
        if self.judges_all {
            self.allocator.check();
            let stats = self.allocator.stats();
            self.counted.judge(&stats);
            assert_eq!(self.allocator.allocated_bytes(), stats.allocated_bytes.all.current);
            assert_eq!(self.allocator.reserved_bytes(), stats.reserved_bytes.all.current);
            let retired_bytes = self.allocator.stats().retired_bytes.all.current;
            assert_eq!(retired_bytes, self.model.retired_bytes());
            let [least, most] = self.gone_counts;
            let gone_count = self.allocator.stats().num_device_free;
            assert!((least..=most).contains(&gone_count), "{gone_count}, not {least} to {most}");
            for (pool, _) in self.pools.iter().filter(|(_, ended)| !ended) {
                // A remainder beside a block that was used again still counts as used outside.
                let right = match self.allocator.is_over(*pool) {
                    true => self.model.is_over(*pool),
                    false => self.used_outside.contains(pool),
                };
                assert!(right, "{pool:?}");
            }
            for segment in self.allocator.segments() {
                let (base, end) = (segment.base, Address(segment.base.0 + segment.bytes));
                let mut blocks = self.allocator.blocks(segment.id);
                let private = blocks.any(|block| block.private.is_some());
                assert_eq!(self.allocator.is_anywhere_private(base, end), private);
            }
        }
    }

    /// Checks the state after one operation of the allocator.
    pub fn look(&mut self) {
        if self.judges_all {
            self.counted.look(&self.allocator);
        }
    }

    /// Checks the state after several of its operations.
    #[track_caller]
    pub fn look_at_several(&mut self) {
        if self.judges_all {
            self.counted.look_at_several(&self.allocator);
        }
    }

    pub fn new_event(&mut self) -> EventId {
        self.next_event += 1;
        EventId(self.next_event)
    }

    pub fn free(&mut self, block: BlockId, ready: ReuseCondition) {
        if let ReuseCondition::OnStream { stream, event } = ready {
            self.recorded.push((stream, event));
        }
        let over = ready.event().is_some_and(|event| self.finished.contains(&event));
        self.model.freed(block, if over { ReuseCondition::Everywhere } else { ready });
        if ready != ReuseCondition::Everywhere {
            self.used_outside.extend(self.view(block).private);
        }
        let address = self.view(block).address;
        let waits =
            ready != ReuseCondition::Everywhere && self.allocator.private_pool_of(block).is_none();
        let before = self.allocator.mark();
        let behind = self.allocator.free(block, ready);
        if let Some(event) = ready.event() {
            let made = before..self.allocator.mark();
            let tags = self.made.entry(event).or_default();
            match tags.iter_mut().find(|(of, _)| *of == ready) {
                Some((_, earlier)) => earlier.end = made.end,
                None => tags.push((ready, made)),
            }
        }
        self.look();
        let freed = self.allocator.find(address).expect("it is there").block;
        let right = self.allocator.wait_of(freed).is_some() == waits;
        assert!(right || !self.judges_all, "{block:?} {ready:?}, as {freed:?}");
        self.may_be_assumed(block, behind);
        self.retire();
    }

    fn view(&self, block: BlockId) -> BlockView {
        let mut views = self.allocator.segments().flat_map(|s| self.allocator.blocks(s.id));
        views.find(|view| view.block == block).expect("it is there")
    }

    /// Returns the freed blocks that wait for their pool.
    pub fn waiting(&self) -> Vec<BlockId> {
        let segments = self.allocator.segments();
        let blocks = segments.flat_map(|segment| self.allocator.blocks(segment.id));
        let blocks = blocks.map(|view| view.block);
        blocks.filter(|block| self.allocator.waits_with_pool(*block)).collect()
    }

    /// Notes that the capture orders later work after the last use of the block.
    pub fn reuse(&mut self, block: BlockId, stream: Option<StreamId>) {
        let view = self.view(block);
        self.model.reused(view.address.0..view.address.0 + view.bytes, stream);
        self.allocator.reuse(block, stream);
        self.look();
    }

    /// Exports the block, which others map from now on. After an export out of an arena the arenas
    /// still grow here: more can happen beside the block.
    pub fn export(&mut self, block: BlockId) {
        self.model.exported(block);
        self.allocator.export(block);
        let allocator = &self.allocator;
        let plain = allocator.segments().filter(|segment| !segment.expandable);
        let mut blocks = plain.flat_map(|segment| allocator.blocks(segment.id));
        let is_plain = blocks.any(|view| view.block == block);
        drop(blocks);
        if is_plain {
            self.allocator.keep_large_whole();
        }
    }

    /// Retires segments, as the caller does whenever a segment's last use may have ended.
    pub fn retire(&mut self) {
        let segments = self.allocator.take_retired();
        self.look();
        for segment in &segments {
            assert!(segment.events.is_empty(), "{segment:x?} still waits");
        }
        self.released(&segments);
        self.retired.extend(segments);
    }

    /// Completes the event on the device, and with it all earlier ones of its stream. The allocator
    /// learns of it when it asks.
    pub fn finish(&mut self, event: EventId) {
        let finished = self.and_earlier(&[event]);
        self.recorded.retain(|(_, event)| !finished.contains(event));
        for event in finished {
            self.model.completed(event);
            self.finished.insert(event);
        }
    }

    pub fn report_finished(&mut self) {
        let mut pending = Vec::new();
        self.allocator.events_pending(&mut |event| pending.push(event));
        pending.retain(|event| self.finished.contains(event));
        for event in pending {
            for (ready, made) in self.made[&event].clone() {
                if self.allocator.is_waiting(ready, made.clone()) {
                    self.allocator.wait_completed(ready, made);
                }
            }
        }
        self.allocator.events_pending(&mut |event| {
            assert!(
                !self.finished.contains(&event),
                "{event:?} is not all between {:?}",
                self.made
            );
        });
        self.look_at_several();
        self.retire();
    }

    pub fn mark(&self) -> Mark {
        Mark { tags: self.allocator.mark(), frees_count: self.model.frees_count() }
    }

    pub fn barrier_passed(&mut self, mark: Mark) {
        self.model.barrier_passed(mark.frees_count);
        self.allocator.barrier_passed(mark.tags);
        self.look_at_several();
        self.retire();
    }

    pub fn trim(&mut self) -> (Vec<Segment>, Vec<Mapping>) {
        let reclaimable_bytes = self.allocator.reclaimable_bytes();
        let free_bytes = self.allocator.free_bytes();
        let mut segments = self.allocator.release_free();
        let waits = segments.iter().find(|segment| !segment.events.is_empty());
        assert!(waits.is_none(), "{waits:x?} is released while it waits");
        let mappings = self.allocator.unmap_free();
        let released_bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let unmapped_bytes: u64 = mappings.iter().map(|mapping| mapping.bytes).sum();
        assert_eq!(released_bytes + unmapped_bytes, reclaimable_bytes);
        segments.extend(self.allocator.release_freed());
        self.look();
        let released_bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        assert_eq!(released_bytes + unmapped_bytes, free_bytes);
        self.unmapped(&mappings);
        self.released(&segments);
        (segments, mappings)
    }

    /// Checks that nothing remains once everything is freed and every wait is complete.
    pub fn end(mut self, live: impl IntoIterator<Item = BlockId>) {
        for block in live {
            self.free(block, ReuseCondition::Everywhere);
        }
        self.barrier_passed(self.mark());
        let mut elsewhere = Vec::new();
        self.allocator.events_pending(&mut |event| elsewhere.push(event));
        elsewhere.into_iter().for_each(|event| self.finish(event));
        self.report_finished();
        for (pool, _) in self.pools.clone() {
            self.end_pool(pool);
            self.close_pool(pool);
        }
        self.check();
        for segment in self.allocator.segments() {
            let blocks: Vec<BlockView> = self.allocator.blocks(segment.id).collect();
            let is_whole = blocks.len() == 1 || blocks.iter().any(|block| block.exported);
            assert!(is_whole, "{segment:?} is in pieces");
        }
        // All of the memory is idle by now; chunks are kept even so.
        let now = self.moment();
        self.release_idle(now);
        if self.allocator.policy().chunk_bytes.is_some() {
            self.trim();
        }
        self.check();
        assert_eq!(self.model.live_count(), 0);
        assert!(self.driver.segments.is_empty(), "memory is lost: {:x?}", self.driver.segments);
        let mappings = self.driver.mappings.iter();
        let mappings =
            mappings.map(|(base, bytes)| Mapping { base: Address(*base), bytes: *bytes });
        let (seen, lost): (Vec<_>, Vec<_>) =
            mappings.partition(|mapping| self.model.is_retired(mapping));
        assert!(lost.is_empty(), "memory is lost: {lost:x?}");
        let seen_bytes: u64 = seen.iter().map(|mapping| mapping.bytes).sum();
        assert_eq!(self.allocator.stats().active_bytes.all.current, 0);
        assert_eq!(self.allocator.stats().reserved_bytes.all.current, seen_bytes);
    }

    fn released(&mut self, segments: &[Segment]) {
        self.gone_counts = self.gone_counts.map(|count| count + segments.len() as u64);
        for segment in segments {
            // The caller waits for these events before the memory is really released.
            for &event in &segment.events {
                self.finish(event);
            }
            self.model.released(segment);
            self.driver.release(segment);
        }
    }

    fn unmapped(&mut self, mappings: &[Mapping]) {
        self.gone_counts[0] +=
            mappings.chunk_by(|left, right| left.end() == right.base).count() as u64;
        self.gone_counts[1] += mappings.len() as u64;
        for mapping in mappings {
            self.model.unmapped(mapping);
            self.driver.unmap(mapping);
        }
    }
}

pub fn request(bytes: u64, requester: Requester, private: Option<PrivatePool>) -> Request {
    match private {
        Some(private) => Request::in_pool(bytes, requester, private),
        None => Request::new(bytes, requester),
    }
}

pub fn stream(number: u64) -> Requester {
    Requester::Stream(StreamId(number))
}

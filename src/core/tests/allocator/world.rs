//! The allocator with all that surrounds it in the product: a driver with limited memory, events
//! that complete some time, requests that are in flight together, and the oracle beside it.

#[path = "captures.rs"]
mod captures;
#[path = "idle.rs"]
mod idle;

use std::collections::{BTreeMap, BTreeSet};

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocation, Allocator, BlockId, BlockView, EventId, IdleMark, Mapping, Policy,
    PrivatePool, Ready, Request, Requester, Segment, Step, StreamId, TagMark,
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
    /// Whether to judge by the invariants and by best fit as well, or by the oracle alone.
    pub judges_all: bool,
    /// Complete on the device, not reported yet.
    finished: BTreeSet<EventId>,
    /// In the order of recording: on one stream they complete in this order.
    pub recorded: Vec<(StreamId, EventId)>,
    next_event: u64,
    /// Private pools, and whether their graph is gone.
    pub pools: Vec<(PrivatePool, bool)>,
    pools_count: u64,
    /// Those whose capture has ended.
    pub captured: Vec<PrivatePool>,
    /// Those for which something was freed behind work outside of them.
    used_outside: BTreeSet<PrivatePool>,
    /// Segments that left because of exported blocks, for drawings.
    pub retired: Vec<Segment>,
    /// What a stream was put behind for the request in progress.
    pub behind: Option<Vec<EventId>>,
    /// Whether memory in arenas comes only when the caller calls `answer`, with what is to come.
    pub maps_late: bool,
    pub late: Option<Vec<Mapping>>,
    /// All that is to come so.
    arriving: Vec<Mapping>,
    /// Whether no stream can be put behind others.
    pub orders_fail: bool,
    /// When the caller last passed by.
    passed: Option<IdleMark>,
    pub assumed: Vec<Assumed>,
    /// How often something went back: one call for what lies together, or for each mapping.
    gone_counts: [u64; 2],
    counted: Counted,
}

/// What the allocator asked for while it served one request, with the driver's answer.
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
    tags: TagMark,
    frees_count: u64,
}

/// A moment, for what is idle since then.
#[derive(Clone, Copy)]
pub struct Moment {
    mark: IdleMark,
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
            self.counted.judge(&self.allocator.stats());
            let retired_bytes = self.allocator.stats().retired_bytes.all.current;
            assert_eq!(retired_bytes, self.model.retired_bytes());
            let [least, most] = self.gone_counts;
            let gone_count = self.allocator.stats().num_device_free;
            assert!((least..=most).contains(&gone_count), "{gone_count}, not {least} to {most}");
            for (pool, _) in self.pools.iter().filter(|(_, ended)| !ended) {
                // What is left beside a block that was used again counts on.
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

    /// One operation of the allocator is over.
    pub fn look(&mut self) {
        if self.judges_all {
            self.counted.look(&self.allocator);
        }
    }

    /// Several of its operations are.
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

    pub fn alloc(&mut self, bytes: u64, requester: Requester) -> (Option<Allocation>, Vec<Asked>) {
        self.alloc_in(bytes, requester, None)
    }

    pub fn alloc_in(
        &mut self,
        bytes: u64,
        requester: Requester,
        private: Option<PrivatePool>,
    ) -> (Option<Allocation>, Vec<Asked>) {
        let expected = naive::best_fit(&self.allocator, bytes, requester, private);
        let joined = self.joined_of_own(bytes, requester, private);
        let retries = self.allocator.stats().num_alloc_retries;
        // From its beginning a request is what it was.
        let mut request = request(bytes, requester, private).again();
        let mut asked = Vec::new();
        let found = loop {
            match self.poll(&mut request) {
                Ok(found) => break found,
                Err(step) => asked.push(step),
            }
        };
        // After a retry a part of a segment may be found that was kept whole before.
        let at_once = asked.is_empty() && retries == self.allocator.stats().num_alloc_retries;
        let hit = found.filter(|_| at_once).map(|found| found.address);
        // What was free before the capture began may serve it, and is no hit.
        let adopted = private.is_some() && expected.is_none();
        let joins = expected.is_none() && hit.is_some_and(|hit| joined.contains(&hit));
        let right = hit == expected || adopted || joins;
        assert!(right || !self.judges_all, "{hit:?}, not {expected:?}, for {bytes}");
        found.iter().for_each(|found| self.check_whole(found));
        asked.extend(self.behind.take().map(Asked::Order));
        if found.is_none() {
            asked.push(Asked::OutOfMemory);
        }
        (found, asked)
    }

    fn joined_of_own(
        &self,
        bytes: u64,
        requester: Requester,
        private: Option<PrivatePool>,
    ) -> Vec<Address> {
        match requester {
            Requester::Stream(stream) if private.is_none() => {
                naive::own_windows(&self.allocator, bytes, stream)
            }
            _ => Vec::new(),
        }
    }

    /// A look at what is free, which asks for nothing.
    pub fn hit(&mut self, request: &Request) -> Option<Allocation> {
        let (bytes, requester) = (request.bytes(), request.requester());
        let expected = naive::best_fit(&self.allocator, bytes, requester, request.private());
        let joined = self.joined_of_own(bytes, requester, request.private());
        let reserved_bytes = self.allocator.stats().reserved_bytes.all.current;
        let found = self.allocator.hit(request);
        self.look();
        let address = found.map(|found| found.address);
        let joins = expected.is_none() && address.is_some_and(|address| joined.contains(&address));
        assert!(address == expected || joins || !self.judges_all, "{address:?}, not {expected:?}");
        assert_eq!(reserved_bytes, self.allocator.stats().reserved_bytes.all.current);
        let allocation = found?;
        self.check_sizes(request, &allocation);
        self.check_whole(&allocation);
        self.model.taken(&allocation, request.requester(), request.private());
        Some(allocation)
    }

    /// One poll, and what the caller has to do for it.
    pub fn poll(&mut self, request: &mut Request) -> Result<Option<Allocation>, Asked> {
        let step = self.allocator.poll(request);
        self.look();
        let asked = match step {
            Step::Done(allocation) => {
                self.check_sizes(request, &allocation);
                self.model.taken(&allocation, request.requester(), request.private());
                return Ok(Some(allocation));
            }
            Step::OutOfMemory => return Ok(None),
            Step::QueryEvents => {
                self.report_finished();
                Asked::QueryEvents
            }
            Step::Reserve { bytes } => {
                let limit_bytes = self.allocator.policy().limit_bytes.unwrap_or(u64::MAX);
                let reserved_bytes = self.allocator.stats().reserved_bytes.all.current;
                assert!(reserved_bytes + bytes <= limit_bytes, "{bytes} more are over the limit");
                let mut granted_bytes = bytes;
                let mut base = self.driver.reserve(bytes);
                while base.is_none() {
                    let policy = self.allocator.policy();
                    let Some(half) = policy.smaller_chunk(granted_bytes, request.bytes()) else {
                        break;
                    };
                    granted_bytes = half;
                    base = self.driver.reserve(granted_bytes);
                }
                match base {
                    Some(base) => {
                        self.allocator.reserved(request, base, granted_bytes);
                        self.look();
                        self.check_newest(base);
                    }
                    None => self.allocator.reserve_failed(request),
                }
                Asked::Reserve { bytes: granted_bytes, granted: base.is_some() }
            }
            Step::Release(segments) => {
                self.released(&segments);
                Asked::Release(segments)
            }
            Step::Map(mappings) => {
                if self.judges_all {
                    windows::judge(&self.allocator, request.bytes(), &self.arriving, &mappings);
                }
                let bytes = mappings.iter().map(|mapping| mapping.bytes).sum();
                self.arriving.extend(&mappings);
                let granted = !self.maps_late && self.answer(request, &mappings);
                self.late = self.maps_late.then_some(mappings);
                Asked::Map { bytes, granted }
            }
            Step::Unmap(mappings) => {
                self.unmapped(&mappings);
                Asked::Unmap(mappings)
            }
            Step::Order(events) if self.orders_fail => {
                self.allocator.order_failed(request);
                self.look();
                Asked::Order(events)
            }
            Step::Order(events) => {
                return Ok(Some(self.ordered(request, events)));
            }
        };
        Err(asked)
    }

    /// The memory that the request has asked for comes, or not.
    pub fn answer(&mut self, request: &mut Request, mappings: &[Mapping]) -> bool {
        let came_count = self.allocator.stats().num_device_alloc;
        let granted = self.driver.map(mappings);
        self.arriving.retain(|arriving| !mappings.contains(arriving));
        match granted {
            true => self.allocator.mapped(request),
            false => self.allocator.reserve_failed(request),
        }
        self.look();
        let ranges = mappings.chunk_by(|left, right| left.end() == right.base);
        let came_count = came_count + if granted { ranges.count() as u64 } else { 0 };
        assert_eq!(self.allocator.stats().num_device_alloc, came_count);
        granted
    }

    pub fn free(&mut self, block: BlockId, ready: Ready) {
        if let Ready::OnStream { stream, event } = ready {
            self.recorded.push((stream, event));
        }
        let over = ready.event().is_some_and(|event| self.finished.contains(&event));
        self.model.freed(block, if over { Ready::Everywhere } else { ready });
        if ready != Ready::Everywhere {
            self.used_outside.extend(self.view(block).private);
        }
        let behind = self.allocator.free(block, ready);
        self.look();
        self.may_be_assumed(block, behind);
        self.retire();
    }

    fn view(&self, block: BlockId) -> BlockView {
        let mut views = self.allocator.segments().flat_map(|s| self.allocator.blocks(s.id));
        views.find(|view| view.block == block).expect("it is there")
    }

    /// The freed blocks that wait for their pool.
    pub fn waiting(&self) -> Vec<BlockId> {
        let segments = self.allocator.segments();
        let blocks = segments.flat_map(|segment| self.allocator.blocks(segment.id));
        let blocks = blocks.map(|view| view.block);
        blocks.filter(|block| self.allocator.waits_with_pool(*block)).collect()
    }

    /// The capture orders what comes behind the last use of the block.
    pub fn reuse(&mut self, block: BlockId, stream: Option<StreamId>) {
        let view = self.view(block);
        self.model.reused(view.address.0..view.address.0 + view.bytes, stream);
        self.allocator.reuse(block, stream);
        self.look();
    }

    /// Memory in an arena cannot be exported.
    pub fn may_export(&self, block: BlockId) -> bool {
        let allocator = &self.allocator;
        let plain = allocator.segments().filter(|segment| !segment.expandable);
        plain.flat_map(|segment| allocator.blocks(segment.id)).any(|view| view.block == block)
    }

    /// Another process maps the block from now on.
    pub fn export(&mut self, block: BlockId) {
        self.model.exported(block);
        self.allocator.export(block);
        self.allocator.keep_large_whole();
    }

    /// What the caller does after whatever may have ended a segment's last use.
    pub fn retire(&mut self) {
        let segments = self.allocator.take_retired();
        self.look();
        for segment in &segments {
            assert!(segment.events.is_empty(), "{segment:x?} still waits");
        }
        self.released(&segments);
        self.retired.extend(segments);
    }

    /// The event is complete on the device, and with it all earlier ones of its stream; the
    /// allocator learns of it when it asks.
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
        let distinct: BTreeSet<EventId> = pending.iter().copied().collect();
        assert_eq!(distinct.len(), pending.len(), "each event once: {pending:?}");
        pending.retain(|event| self.finished.contains(event));
        for event in pending {
            self.allocator.event_completed(event);
            self.look_at_several();
        }
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

    /// Once everything is freed and every wait is over, nothing may be left behind.
    pub fn end(mut self, live: impl IntoIterator<Item = BlockId>) {
        for block in live {
            self.free(block, Ready::Everywhere);
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
            assert_eq!(self.allocator.blocks(segment.id).count(), 1, "{segment:?} is in pieces");
        }
        // All of it is idle by now; chunks are kept even so.
        let now = self.moment();
        self.release_idle(now);
        if self.allocator.policy().chunk_bytes.is_some() {
            self.trim();
        }
        self.check();
        assert_eq!(self.model.live_count(), 0);
        assert!(self.driver.segments.is_empty(), "memory is lost: {:x?}", self.driver.segments);
        assert!(self.driver.mappings.is_empty(), "memory is lost: {:x?}", self.driver.mappings);
        assert_eq!(self.allocator.stats().active_bytes.all.current, 0);
        assert_eq!(self.allocator.stats().reserved_bytes.all.current, 0);
    }

    fn released(&mut self, segments: &[Segment]) {
        self.gone_counts = self.gone_counts.map(|count| count + segments.len() as u64);
        for segment in segments {
            // The caller waits for these before the memory really goes.
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

    /// Segments are numbered as they come; `naive` chooses by these numbers.
    fn check_newest(&self, base: Address) {
        let plain = self.allocator.segments().filter(|segment| !segment.expandable);
        let newest = plain.max_by_key(|segment| (segment.registration, segment.base != base));
        assert_eq!(newest.map(|segment| segment.base), Some(base), "{newest:?}");
    }

    /// For requests that came after the export: one in flight may have its block already.
    fn check_whole(&self, allocation: &Allocation) {
        let view = self.allocator.find(allocation.address).expect("it is ours");
        // Only after a request failed is a part of a segment better than nothing.
        let may_share = self.allocator.stats().num_alloc_retries > 0 || view.bytes <= MIB;
        if self.allocator.keeps_large_whole() && !may_share {
            let whole = (view.segment.base, view.segment.bytes) == (view.address, view.bytes);
            assert!(whole, "{view:x?} is handed out inside a segment");
        }
    }

    pub fn check_sizes(&self, request: &Request, allocation: &Allocation) {
        assert!(allocation.bytes >= request.bytes());
        assert_eq!(allocation.requested_bytes, request.bytes());
        let view = self.allocator.find(Address(allocation.address.0 + 1)).expect("it is ours");
        assert_eq!(view.block, allocation.block);
        assert_eq!((view.address, view.bytes), (allocation.address, allocation.bytes));
        assert_eq!(Some(view), self.allocator.find(allocation.address));
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

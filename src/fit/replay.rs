//! Passes requests through the allocator as the library serves them: a hit, else the core's steps,
//! else the last resorts (`preload/cache/miss.rs`).
//!
//! Two parts are omitted, because no history tells when they would happen. The thread caches return
//! their blocks before the cache grows. The duration of work is unknown: if a request finds nothing
//! else, the work that uses memory freed on a stream is assumed to have ended.

use cachealloc_core::policy::ROOM_TRIES_MAX;
use cachealloc_core::{
    Address, Allocator, BlockId, EventId, Mapping, Pool, Request, Requester, ReuseCondition,
    Segment, StreamId,
};
use cachealloc_options::{Config, IdleRelease};

use crate::memory::{Capacity, Memory};
use crate::passes::Passes;
use crate::requests::{Requests, Step};

/// Result of a replay, as far as it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Number of the step that failed, or `None` if all were served.
    pub failed_at: Option<usize>,
    /// Peak of the bytes from the driver, for the cache and for direct requests.
    pub peak_reserved_bytes: u64,
    /// Bytes that the program held when that peak was first reached.
    pub held_then_bytes: u64,
    /// Calls that allocate, map, unmap or free memory.
    pub driver_calls: u64,
}

impl Outcome {
    pub fn completes(&self) -> bool {
        self.failed_at.is_none()
    }

    /// Returns the share of the reserved peak that the program did not hold at that moment.
    pub fn fragmentation(&self) -> f64 {
        match self.peak_reserved_bytes {
            0 => 0.0,
            reserved => 1.0 - self.held_then_bytes as f64 / reserved as f64,
        }
    }
}

/// Size of each arena: more than is ever mapped, so that the second one begins past the end of the
/// first.
const ARENA_BYTES: u64 = 1 << 52;
const SMALL_ARENA: Address = Address(1 << 53);
const LARGE_ARENA: Address = Address(1 << 54);

pub fn replay(requests: &Requests, config: &Config, capacity: Capacity) -> Outcome {
    let mut replay = Replay::new(requests, config, capacity);
    let failed_at = requests.steps().iter().position(|step| !replay.step(*step));
    Outcome {
        failed_at,
        peak_reserved_bytes: replay.memory.peak_bytes,
        held_then_bytes: replay.held_then_bytes,
        driver_calls: replay.memory.calls_count,
    }
}

/// Where an allocation is now.
#[derive(Clone, Copy)]
enum Place {
    Nowhere,
    Cache(BlockId),
    Driver,
}

struct Replay<'a> {
    requests: &'a Requests,
    allocator: Allocator,
    memory: Memory,
    zone_bytes: u64,
    idle_release: IdleRelease,
    passes: Passes,
    places: Vec<Place>,
    held_bytes: u64,
    held_then_bytes: u64,
    /// Events of frees in stream order that have not ended, and the total number of such frees.
    events: Vec<EventId>,
    events_count: u64,
}

impl<'a> Replay<'a> {
    fn new(requests: &'a Requests, config: &Config, capacity: Capacity) -> Replay<'a> {
        let mut allocator = Allocator::new(config.policy.clone());
        if config.policy.expandable_segments {
            allocator.add_arena(Pool::Small, SMALL_ARENA, ARENA_BYTES);
            allocator.add_arena(Pool::Large, LARGE_ARENA, ARENA_BYTES);
        }
        // The library passes the same to its allocator (`limits::tell`).
        let collects = config.policy.garbage_collection_threshold > 0.0;
        allocator.set_limit(capacity.bytes().filter(|_| collects));
        allocator.set_capacity(capacity.bytes(), capacity.is_limit());
        Replay {
            requests,
            allocator,
            memory: Memory::new(capacity),
            zone_bytes: config.red_zone_bytes,
            idle_release: config.idle_release,
            passes: Passes::new(config),
            places: vec![Place::Nowhere; requests.count()],
            held_bytes: 0,
            held_then_bytes: 0,
            events: Vec::new(),
            events_count: 0,
        }
    }

    /// Executes a step. Returns `false` if there is not enough memory.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Time(tenths) => {
                self.passes.time_is(tenths);
                while self.passes.is_due() {
                    self.pass();
                    self.passes.passed(self.reserved_bytes());
                }
                true
            }
            Step::Allocate(number) => self.allocate(number),
            Step::Free(number) => {
                // A plain free is ordered after all work, and so is everything after it.
                if self.requests.asked(number).stream == 0 {
                    self.streams_are_done();
                }
                self.free(number, ReuseCondition::Everywhere);
                true
            }
            Step::FreeOnStream(number) => {
                let stream = StreamId(self.requests.asked(number).stream);
                let event = EventId(self.events_count);
                self.events_count += 1;
                self.free(number, ReuseCondition::OnStream { stream, event });
                true
            }
        }
    }

    fn allocate(&mut self, number: u32) -> bool {
        let asked = self.requests.asked(number);
        self.held_bytes = self.held_bytes.saturating_add(asked.bytes);
        let peak_before_bytes = self.memory.peak_bytes;
        let place = if asked.by_driver {
            self.take_beside(asked.bytes)
        } else {
            let requester = match asked.stream {
                0 => Requester::Context,
                stream => Requester::Stream(StreamId(stream)),
            };
            let request = Request::new(asked.bytes.saturating_add(self.zone_bytes), requester);
            match self.allocator.hit(&request) {
                Some(allocation) => Some(Place::Cache(allocation.block)),
                None => self.miss(request),
            }
        };
        if self.memory.peak_bytes > peak_before_bytes {
            self.held_then_bytes = self.held_bytes;
        }
        self.places[number as usize] = place.unwrap_or(Place::Nowhere);
        place.is_some()
    }

    fn free(&mut self, number: u32, ready: ReuseCondition) {
        let asked = self.requests.asked(number);
        let place = std::mem::replace(&mut self.places[number as usize], Place::Nowhere);
        match place {
            Place::Nowhere => return,
            Place::Cache(block) => _ = self.allocator.free(block, ready),
            Place::Driver => self.memory.give_back(asked.bytes),
        }
        self.events.extend(ready.event());
        self.held_bytes = self.held_bytes.saturating_sub(asked.bytes);
    }

    fn miss(&mut self, request: Request) -> Option<Place> {
        let place = self.grow(request);
        self.passes.cache_grew(self.reserved_bytes());
        place
    }

    fn grow(&mut self, mut request: Request) -> Option<Place> {
        if request.bytes() > self.memory.capacity().most_bytes() {
            return None;
        }
        for _ in 0..ROOM_TRIES_MAX {
            let returns_count = self.memory.returns_count;
            if let Some(block) = self.serve(&mut request) {
                return Some(Place::Cache(block));
            }
            self.release_everything();
            let may_be_the_driver_s = request.requester() == Requester::Context;
            if may_be_the_driver_s && self.memory.take(request.bytes() - self.zone_bytes) {
                return Some(Place::Driver);
            }
            if self.memory.returns_count == returns_count {
                break;
            }
            request = request.again();
        }
        None
    }

    /// Follows the core's steps until there is a block, or nothing is left to try.
    fn serve(&mut self, request: &mut Request) -> Option<BlockId> {
        use cachealloc_core::Step;
        loop {
            match self.allocator.poll(request) {
                Step::Done(allocation) => return Some(allocation.block),
                Step::OutOfMemory => return None,
                Step::QueryEvents => self.streams_are_done(),
                Step::Order(_) => self.allocator.order_failed(request),
                Step::Release(segments) => self.released(&segments),
                Step::Unmap(mappings) => self.unmapped(&mappings),
                Step::Map(mappings) => match self.map(&mappings) {
                    true => self.allocator.mapped(request),
                    false => self.allocator.reserve_failed(request),
                },
                Step::Reserve { bytes } => match self.reserve(bytes) {
                    Some(address) => self.allocator.reserved(request, address, bytes),
                    None => self.allocator.reserve_failed(request),
                },
            }
        }
    }

    fn take_beside(&mut self, bytes: u64) -> Option<Place> {
        if !self.memory.take(bytes) {
            self.release_everything();
            if !self.memory.take(bytes) {
                return None;
            }
        }
        Some(Place::Driver)
    }

    fn reserve(&mut self, bytes: u64) -> Option<Address> {
        let is_taken = self.memory.take(bytes);
        is_taken.then(|| self.memory.address(bytes)).flatten()
    }

    /// Maps all or nothing.
    fn map(&mut self, mappings: &[Mapping]) -> bool {
        let fit = mappings.iter().take_while(|mapping| self.memory.take(mapping.bytes)).count();
        if fit < mappings.len() {
            self.unmapped(&mappings[..fit]);
        }
        fit == mappings.len()
    }

    /// Passes as the library does. All work that began before the last pass is assumed to have
    /// ended.
    fn pass(&mut self) {
        let pass = self.allocator.pass(self.idle_release.seconds());
        if let Some(due) = pass.due.filter(|_| self.idle_release != IdleRelease::Never) {
            let (segments, mappings) = self.allocator.release_idle(due);
            self.released(&segments);
            self.unmapped(&mappings);
        }
        if self.allocator.policy().free_bytes_max.is_some() {
            self.streams_are_done();
            let (segments, mappings) = self.allocator.release_excess(pass.mark);
            self.released(&segments);
            self.unmapped(&mappings);
        }
    }

    fn reserved_bytes(&self) -> u64 {
        self.allocator.reserved_bytes()
    }

    fn released(&mut self, segments: &[Segment]) {
        segments.iter().for_each(|segment| self.memory.give_back(segment.bytes));
    }

    fn unmapped(&mut self, mappings: &[Mapping]) {
        mappings.iter().for_each(|mapping| self.memory.give_back(mapping.bytes));
    }

    fn release_everything(&mut self) {
        self.streams_are_done();
        let segments = self.allocator.release_free();
        self.released(&segments);
        let mappings = self.allocator.unmap_free();
        self.unmapped(&mappings);
    }

    fn streams_are_done(&mut self) {
        self.allocator.events_completed(&std::mem::take(&mut self.events));
    }
}

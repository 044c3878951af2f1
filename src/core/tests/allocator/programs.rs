//! Long random programs against the oracle, under several policies, with several requests in flight
//! at the same time. The steps of one request between two polls of another must not matter.

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    BlockId, EventId, Mapping, Policy, PrivatePool, Request, Requester, ReuseCondition, StreamId,
};
use cachealloc_options::parse;

use crate::random::Random;
use crate::world::{Mark, Moment, World, request};

const STEPS_COUNT: u64 = 600;
const IN_FLIGHT_COUNT_MAX: usize = 3;
const POOLS_COUNT_MAX: usize = 3;
const POLICIES: [&str; 9] = [
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:40,max_non_split_rounding_mb:24",
    "garbage_collection_threshold:0.5",
    "roundup_power2_divisions:[1:4,8:2,>:8],large_segment_size_mb:12",
    "expandable_segments:true",
    "expandable_segments:true,max_split_size_mb:20,garbage_collection_threshold:0.5",
    "strategy:pre_allocate",
    "strategy:pre_allocate,max_split_size_mb:20,garbage_collection_threshold:0.9",
];

/// Sizes that the caller may want as the next chunk; with 0, no more than the request.
const CHUNKS_BYTES: [u64; 4] = [0, 8 * MIB, 40 * MIB, 100 * MIB];

struct Program {
    world: World,
    random: Random,
    live: Vec<BlockId>,
    /// Requests, and the memory in arenas that is arriving for them.
    in_flight: Vec<(Request, Option<Vec<Mapping>>)>,
    events: Vec<EventId>,
    mark: Option<Mark>,
    moment: Option<Moment>,
    exports: bool,
    captures: bool,
}

/// Runs the program with this number. Panics where the allocator is at fault.
pub fn run(seed: u64, judges_all: bool) {
    let mut random = Random::new(seed);
    let limit_bytes = random.pick(&[Some(64 * MIB), Some(256 * MIB), None]);
    let policy = Policy {
        limit_bytes,
        free_bytes_max: Some(16 * MIB),
        excess_share: [0.5, 1.0][seed as usize % 2],
        ..parse(random.pick(&POLICIES)).0.policy
    };
    let capacity_bytes = random.pick(&[48 * MIB, 120 * MIB, 1 << 40]);
    let exports = random.below(3) == 0;
    let captures = random.below(2) == 0;
    let mut program = Program {
        world: World::new(policy, capacity_bytes),
        random,
        live: Vec::new(),
        in_flight: Vec::new(),
        events: Vec::new(),
        mark: None,
        moment: None,
        exports,
        captures,
    };
    program.world.judges_all = judges_all;
    program.world.allocator.set_chunk(program.random.pick(&CHUNKS_BYTES));
    let capacity_bytes = program.random.pick(&[None, Some(120 * MIB), Some(8192 * MIB)]);
    let is_limit = program.random.below(2) == 0;
    program.world.allocator.set_capacity(capacity_bytes, is_limit);
    for _ in 0..STEPS_COUNT {
        program.step();
        program.world.check();
    }
    program.end();
}

impl Program {
    fn step(&mut self) {
        if self.captures && self.random.below(8) == 0 {
            return self.capture();
        }
        match self.random.below(20) {
            0..5 => self.alloc(),
            5..7 if self.in_flight.len() < IN_FLIGHT_COUNT_MAX => {
                let request = request(self.size(), self.requester(), self.pool());
                self.in_flight.push((request, None));
            }
            5..11 if !self.in_flight.is_empty() => self.poll_one(),
            11..16 if !self.live.is_empty() => self.free(),
            // Most programs never export: an export permanently changes how large requests are
            // served.
            16 if self.exports && self.random.below(4) == 0 && !self.live.is_empty() => {
                let place = self.random.below(self.live.len() as u64) as usize;
                self.world.export(self.live[place]);
            }
            16 => self.finish_one(),
            17 if self.mark.is_none() => self.mark = Some(self.world.mark()),
            17 | 18 if self.random.below(4) == 0 => {
                let mark = self.mark.take().unwrap_or_else(|| self.world.mark());
                self.world.barrier_passed(mark);
            }
            19 => match self.random.below(10) {
                0 => drop(self.world.trim()),
                1 => self.world.allocator.set_pressure(false),
                3 => self.world.allocator.set_chunk(self.random.pick(&CHUNKS_BYTES)),
                2 => self.world.report_finished(),
                8 => self.world.pass(),
                9 => self.world.assume_over(),
                4 => self.moment = Some(self.world.moment()),
                5 => drop(self.moment.map(|moment| self.world.release_idle(moment))),
                6 => {
                    let wanted_bytes = self.size();
                    self.moment.map(|moment| self.world.give(moment, wanted_bytes));
                }
                _ => {
                    self.moment.map(|moment| self.world.release_excess(moment));
                }
            },
            _ => {}
        }
    }

    fn alloc(&mut self) {
        let (bytes, requester, pool) = (self.size(), self.requester(), self.pool());
        let request = request(bytes, requester, pool);
        if self.random.below(4) == 0 {
            if let Some(pool) = pool.filter(|_| self.random.below(2) == 0) {
                let part = self.world.adopt_part(bytes, requester, pool);
                return self.live.extend(part.map(|found| found.block));
            }
            self.live.extend(self.world.hit(&request).map(|found| found.block));
            return;
        }
        let found = self.world.alloc_in(bytes, requester, pool).0;
        // The caller does this where the driver has no memory.
        let part = || self.world.adopt_part(bytes, requester, pool?);
        self.live.extend(found.or_else(part).map(|found| found.block));
    }

    /// Returns a running capture for an allocation.
    fn pool(&mut self) -> Option<PrivatePool> {
        let served = self.served();
        let for_capture = !served.is_empty() && self.random.below(2) == 0;
        for_capture.then(|| self.random.pick(&served))
    }

    /// Returns the pools whose capture runs.
    fn served(&self) -> Vec<PrivatePool> {
        let runs = |pool: &PrivatePool| !self.world.captured.contains(pool);
        let served = self.world.pools.iter().filter(|(_, ended)| !ended);
        served.map(|(pool, _)| *pool).filter(runs).collect()
    }

    /// Does something that a thread of a capture may do with a block.
    fn take_part(&mut self) {
        let served = self.served();
        if served.is_empty() {
            return;
        }
        let pool = self.random.pick(&served);
        if self.random.below(8) == 0 {
            return self.world.open_rest(pool);
        }
        if self.live.is_empty() {
            return;
        }
        let place = self.random.below(self.live.len() as u64) as usize;
        let block = self.live[place];
        match self.world.pool_of(block) {
            None if self.random.below(2) == 0 => self.world.name_elsewhere(block, pool),
            None if self.world.is_free_everywhere(block) => {
                self.world.join(block, pool);
            }
            Some(pool) if self.random.below(2) == 0 => self.world.name(block, pool),
            Some(pool) if self.random.below(2) == 0 => self.world.leave(block, pool),
            Some(pool) => {
                self.live.swap_remove(place);
                self.world.free_in_capture(block, pool);
            }
            None => {}
        }
    }

    fn capture(&mut self) {
        match self.random.below(12) {
            8.. => self.take_part(),
            0 if self.world.pools.len() < POOLS_COUNT_MAX => drop(self.world.open_pool()),
            1 if !self.world.pools.is_empty() => {
                let (pool, ended) = self.random.pick(&self.world.pools);
                match ended {
                    true => self.world.close_pool(pool),
                    false => self.world.end_pool(pool),
                }
            }
            _ => {
                let waiting = self.world.waiting();
                if !waiting.is_empty() {
                    let stream = StreamId(self.random.below(3));
                    let stream = (self.random.below(2) == 0).then_some(stream);
                    self.world.reuse(self.random.pick(&waiting), stream);
                }
            }
        }
    }

    fn poll_one(&mut self) {
        let place = self.random.below(self.in_flight.len() as u64) as usize;
        let (request, late) = &mut self.in_flight[place];
        if let Some(mappings) = late.take() {
            self.world.answer(request, &mappings);
            return;
        }
        self.world.maps_late = self.random.below(2) == 0;
        self.world.orders_fail = self.random.below(4) == 0;
        let polled = self.world.poll(request);
        (self.world.maps_late, self.world.orders_fail) = (false, false);
        *late = self.world.late.take();
        if let Ok(found) = polled {
            let (request, _) = self.in_flight.swap_remove(place);
            self.live.extend(found.map(|found| found.block));
            // The caller does this if the capture has ended meanwhile.
            let pool = request.private().filter(|pool| self.world.captured.contains(pool));
            let pool = pool.filter(|pool| self.world.pools.iter().any(|(open, _)| open == pool));
            pool.into_iter().for_each(|pool| self.world.open_rest(pool));
        }
    }

    fn free(&mut self) {
        let place = self.random.below(self.live.len() as u64) as usize;
        let block = self.live.swap_remove(place);
        let stream = StreamId(self.random.below(3));
        let ready = match self.random.below(8) {
            0..3 => ReuseCondition::Everywhere,
            3..6 => ReuseCondition::OnStream { stream, event: self.world.new_event() },
            6 if self.random.below(2) == 0 => {
                ReuseCondition::AfterElsewhere { event: self.shared_event() }
            }
            6 => ReuseCondition::After { event: self.shared_event() },
            _ => ReuseCondition::NextBarrier,
        };
        self.events.extend(ready.event());
        self.world.free(block, ready);
    }

    /// Several blocks may wait for one event.
    fn shared_event(&mut self) -> EventId {
        match self.events.last() {
            Some(&event) if self.random.below(2) == 0 => event,
            _ => self.world.new_event(),
        }
    }

    fn finish_one(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let place = self.random.below(self.events.len() as u64) as usize;
        let event = self.events[place];
        self.events.retain(|other| *other != event);
        self.world.finish(event);
        if self.random.below(2) == 0 {
            self.world.report_finished();
        }
    }

    fn size(&mut self) -> u64 {
        let largest = self.random.pick(&[2048, 64 << 10, MIB, 4 * MIB, 12 * MIB, 50 * MIB]);
        1 + self.random.below(largest)
    }

    fn requester(&mut self) -> Requester {
        match self.random.below(6) {
            0..3 => Requester::Context,
            _ => Requester::Stream(StreamId(self.random.below(3))),
        }
    }

    fn end(mut self) {
        while !self.in_flight.is_empty() {
            self.poll_one();
        }
        self.world.end(self.live);
    }
}

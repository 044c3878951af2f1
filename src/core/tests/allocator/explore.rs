//! Every program up to a length: each allocation size for each requester, each live block exported,
//! each way to free it, each event completing, barriers with old and new marks, trims, releases of
//! idle memory. All invariants are checked after every step, and the oracle watches every byte.

use cachealloc_core::policy::MIB;
use cachealloc_core::{BlockId, EventId, Policy, PrivatePool, Requester, ReuseCondition, StreamId};

use crate::world::{Mark, Moment, World, stream};

/// The first size shares small segments, the second shares large ones, the third gets a separate
/// segment.
const SIZES: [u64; 3] = [700 << 10, 7 * MIB, 12 * MIB];
/// Capacity for two or three segments, so that programs of this length run out of memory.
const CAPACITY_BYTES: u64 = 42 * MIB;

#[derive(Clone)]
pub struct Explorer {
    world: World,
    live: Vec<BlockId>,
    events: Vec<EventId>,
    mark: Option<Mark>,
    moment: Option<Moment>,
    exported: Vec<BlockId>,
    /// Whether programs have one capture, and less of everything else.
    captures: bool,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Alloc { bytes: u64, requester: Requester },
    Free { place: usize, how: How },
    Export { place: usize },
    Finish { event: EventId, report: bool },
    Mark,
    Barrier,
    Trim,
    ReleaseIdle,
    OpenPool,
    AllocInPool { bytes: u64, requester: Requester },
    Reuse { block: BlockId, on: Option<u64> },
    Join { place: usize },
    Name { place: usize },
    FreeInCapture { place: usize },
    OpenRest,
    EndPool,
    ClosePool,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Everywhere,
    OnStream(u64),
    After,
    AfterElsewhere,
    NextBarrier,
}

impl Explorer {
    /// Returns explorers with plain segments, with expandable ones, and with a capture.
    pub fn each(judges_all: bool) -> [Explorer; 3] {
        let explorer = |expandable_segments| {
            Explorer::new(Policy { expandable_segments, ..Policy::default() }, judges_all)
        };
        [explorer(false), explorer(true), Explorer { captures: true, ..explorer(false) }]
    }

    fn new(policy: Policy, judges_all: bool) -> Explorer {
        let mut world = World::new(policy, CAPACITY_BYTES);
        world.judges_all = judges_all;
        Explorer {
            world,
            live: Vec::new(),
            events: Vec::new(),
            mark: None,
            moment: None,
            exported: Vec::new(),
            captures: false,
        }
    }

    /// Runs every continuation of at most `steps` operations and returns how many there are.
    pub fn all(&self, steps: usize, trail: &mut Vec<String>) -> u64 {
        if steps == 0 {
            return 0;
        }
        let mut programs = 0;
        for operation in self.operations() {
            trail.push(format!("{operation:?}"));
            let mut next = self.clone();
            next.run(operation);
            next.world.check();
            programs += 1 + next.all(steps - 1, trail);
            trail.pop();
        }
        programs
    }

    fn operations(&self) -> Vec<Operation> {
        if self.captures {
            return self.operations_with_capture();
        }
        let mut operations = Vec::new();
        for bytes in SIZES {
            for requester in [Requester::Context, stream(1)] {
                operations.push(Operation::Alloc { bytes, requester });
            }
        }
        let hows = [
            How::Everywhere,
            How::OnStream(1),
            How::OnStream(2),
            How::After,
            How::AfterElsewhere,
            How::NextBarrier,
        ];
        for place in 0..self.live.len() {
            operations.extend(hows.map(|how| Operation::Free { place, how }));
            let block = self.live[place];
            if !self.exported.contains(&block) {
                operations.push(Operation::Export { place });
            }
        }
        for &event in &self.events {
            operations.extend([true, false].map(|report| Operation::Finish { event, report }));
        }
        // A mark, a barrier or a trim shows nothing new where it has no effect.
        let waits_later = !self.live.is_empty() || !self.events.is_empty();
        if waits_later && self.mark.is_none() {
            operations.push(Operation::Mark);
        }
        if self.world.allocator.segments().next().is_some() {
            operations.extend([Operation::Barrier, Operation::Trim]);
        }
        if self.moment.is_some() {
            operations.push(Operation::ReleaseIdle);
        }
        operations
    }

    fn operations_with_capture(&self) -> Vec<Operation> {
        const BYTES: u64 = 12 * MIB;
        let mut operations = vec![Operation::Alloc { bytes: BYTES, requester: Requester::Context }];
        let runs = |pool: &PrivatePool| !self.world.captured.contains(pool);
        let pools = self.world.pools.iter().filter(|(_, ended)| !ended);
        let open = pools.map(|(pool, _)| *pool).find(runs);
        for (place, block) in self.live.iter().enumerate() {
            operations.push(Operation::Free { place, how: How::Everywhere });
            operations.push(Operation::Free { place, how: How::NextBarrier });
            let Some(pool) = open else { continue };
            match self.world.allocator.private_pool_of(*block) {
                Some(_) => {
                    operations.push(Operation::FreeInCapture { place });
                    if !self.world.is_named(*block, pool) {
                        operations.push(Operation::Name { place });
                    }
                }
                None if self.world.is_free_everywhere(*block) => {
                    operations.push(Operation::Join { place });
                }
                None => {}
            }
        }
        if open.is_some() {
            operations.push(Operation::OpenRest);
        }
        for block in self.world.waiting() {
            operations.extend([None, Some(1)].map(|on| Operation::Reuse { block, on }));
        }
        if self.world.allocator.segments().next().is_some() {
            operations.extend([Operation::Barrier, Operation::Trim]);
        }
        match self.world.pools.first() {
            None => operations.push(Operation::OpenPool),
            Some((_, true)) => operations.push(Operation::ClosePool),
            Some((pool, false)) => {
                operations.push(Operation::EndPool);
                if !runs(pool) {
                    return operations;
                }
                for (bytes, requester) in
                    [(BYTES, Requester::Context), (7 * MIB, stream(1)), (7 * MIB, stream(2))]
                {
                    operations.push(Operation::AllocInPool { bytes, requester });
                }
            }
        }
        operations
    }

    fn run(&mut self, operation: Operation) {
        let pool = self.world.pools.first().map(|(pool, _)| *pool);
        match operation {
            Operation::OpenPool => drop(self.world.open_pool()),
            Operation::Join { place } => {
                self.world.join(self.live[place], pool.expect("offered only then"));
            }
            Operation::Name { place } => {
                self.world.name(self.live[place], pool.expect("offered only then"));
            }
            Operation::FreeInCapture { place } => {
                let block = self.live.remove(place);
                self.world.free_in_capture(block, pool.expect("offered only then"));
            }
            Operation::OpenRest => self.world.open_rest(pool.expect("offered only then")),
            Operation::EndPool => self.world.end_pool(pool.expect("offered only then")),
            Operation::ClosePool => self.world.close_pool(pool.expect("offered only then")),
            Operation::Reuse { block, on } => self.world.reuse(block, on.map(StreamId)),
            Operation::AllocInPool { bytes, requester } => {
                let (found, _) = self.world.alloc_in(bytes, requester, pool);
                self.live.extend(found.map(|found| found.block));
            }
            Operation::Alloc { bytes, requester } => {
                let (found, _) = self.world.alloc(bytes, requester);
                self.live.extend(found.map(|found| found.block));
            }
            Operation::Free { place, how } => self.free(place, how),
            Operation::Export { place } => {
                self.world.export(self.live[place]);
                self.exported.push(self.live[place]);
            }
            Operation::Finish { event, report } => {
                self.events.retain(|other| *other != event);
                self.world.finish(event);
                if report {
                    self.world.report_finished();
                }
            }
            Operation::Mark => {
                self.mark = Some(self.world.mark());
                self.moment = Some(self.world.moment());
            }
            Operation::Barrier => {
                let mark = self.mark.take().unwrap_or_else(|| self.world.mark());
                self.world.barrier_passed(mark);
            }
            Operation::Trim => {
                self.world.trim();
            }
            Operation::ReleaseIdle => {
                let since = self.moment.take().expect("offered only then");
                self.world.release_idle(since);
            }
        }
    }

    fn free(&mut self, place: usize, how: How) {
        let block = self.live.remove(place);
        self.exported.retain(|exported| *exported != block);
        let ready = match how {
            How::Everywhere => ReuseCondition::Everywhere,
            How::OnStream(number) => {
                ReuseCondition::OnStream { stream: StreamId(number), event: self.world.new_event() }
            }
            How::After => ReuseCondition::After { event: self.world.new_event() },
            How::AfterElsewhere => ReuseCondition::AfterElsewhere { event: self.world.new_event() },
            How::NextBarrier => ReuseCondition::NextBarrier,
        };
        self.events.extend(ready.event());
        self.world.free(block, ready);
    }
}

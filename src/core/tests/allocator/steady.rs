//! The cost of Note [Capacity]: calls to the driver by programs whose sizes never repeat.

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocation, Allocator, Policy, Request, Requester, ReuseCondition, Step,
};

use crate::random::Random;

const ROOM_BYTES: u64 = 80 << 30;
const LAYERS_COUNT: u64 = 48;
const REQUESTS_PER_STEP: u64 = LAYERS_COUNT * 9;

struct Program {
    allocator: Allocator,
    random: Random,
    end: Address,
}

impl Program {
    fn new() -> Program {
        Program::within(Some(ROOM_BYTES))
    }

    /// Creates a program with a limit. With `None`, the driver itself refuses requests above the
    /// capacity.
    fn within(limit_bytes: Option<u64>) -> Program {
        let policy = Policy { limit_bytes, ..Policy::default() };
        let mut allocator = Allocator::new(policy);
        allocator.set_capacity(Some(ROOM_BYTES), false);
        Program { allocator, random: Random::new(1), end: Address(2 * MIB) }
    }

    fn alloc(&mut self, bytes: u64) -> Allocation {
        let mut request = Request::new(bytes.max(1), Requester::Context);
        loop {
            match self.allocator.poll(&mut request) {
                Step::Done(allocation) => return allocation,
                Step::Release(_) => {}
                Step::Reserve { bytes } if bytes > self.left_bytes() => {
                    self.allocator.reserve_failed(&mut request);
                }
                Step::Reserve { bytes } => {
                    self.allocator.reserved(&mut request, self.end, bytes);
                    self.end.0 += bytes.next_multiple_of(2 * MIB);
                }
                step => panic!("{step:?} without streams, and with memory to spare"),
            }
        }
    }

    fn left_bytes(&self) -> u64 {
        ROOM_BYTES - self.allocator.stats().reserved_bytes.all.current
    }

    /// Checks that a request is refused: others hold the rest of the device, or the limit is
    /// reached.
    fn is_refused(&mut self, bytes: u64) {
        let mut request = Request::new(bytes, Requester::Context);
        loop {
            match self.allocator.poll(&mut request) {
                Step::OutOfMemory => return,
                Step::Release(_) => {}
                Step::Reserve { .. } => self.allocator.reserve_failed(&mut request),
                step => panic!("{step:?} for {bytes} bytes"),
            }
        }
    }

    fn free(&mut self, block: Allocation) {
        self.allocator.free(block.block, ReuseCondition::Everywhere);
    }

    fn calls_count(&self) -> u64 {
        self.allocator.stats().num_device_alloc
    }

    /// Runs `steps_count` steps, each for a sequence of another length, which hold at most
    /// `bytes_max`. Returns the calls.
    fn train(&mut self, steps_count: u64, bytes_max: u64) -> u64 {
        let before = self.calls_count();
        for _ in 0..steps_count {
            // Lengths are at most 512, as for tokens in a sentence.
            let length = 100 + self.random.below(413);
            self.step(bytes_max / LAYERS_COUNT * length / 512);
        }
        self.calls_count() - before
    }

    fn step(&mut self, layer_bytes: u64) {
        let mut live = Vec::new();
        for _ in 0..LAYERS_COUNT {
            for part in [2, 6, 6, 12, 24, 48] {
                live.push(self.alloc(layer_bytes / part));
            }
            let short_lived = self.alloc(layer_bytes / 9);
            self.free(short_lived);
        }
        while let Some(block) = live.pop() {
            let gradient = (live.len() % 3 == 0).then(|| self.alloc(layer_bytes / 12));
            self.free(block);
            gradient.into_iter().for_each(|gradient| self.free(gradient));
        }
    }

    fn hit(&mut self, count: u64) {
        let mut block = self.alloc(MIB / 2);
        for _ in 1..count {
            self.free(block);
            let request = Request::new(MIB / 2, Requester::Context);
            block = self.allocator.hit(&request).expect("it is free");
        }
        self.free(block);
    }

    /// Returns whether a request makes a call although a larger segment is free.
    fn is_spared_a_cut(&mut self) -> bool {
        self.allocator.release_free();
        let segment = self.alloc(900 * MIB);
        self.free(segment);
        let before = self.calls_count();
        let block = self.alloc(500 * MIB);
        self.free(block);
        self.calls_count() > before
    }
}

/// Without a count of the splits avoided, each step makes 80 to 300 calls, without end. With 80 %
/// in use the holes of this program often take a quarter of the slack: then there are 15.
#[test]
fn sizes_that_never_repeat_cost_calls_only_while_the_program_grows() {
    for (percent, limit_bytes) in [20, 40, 60, 80]
        .into_iter()
        .flat_map(|percent| [(percent, None), (percent, Some(ROOM_BYTES))])
    {
        let held_bytes = ROOM_BYTES / 100 * percent;
        let mut program = Program::within(limit_bytes);
        for _ in 0..100 {
            program.alloc(held_bytes / 300);
        }
        let growing = program.train(50, held_bytes / 3 * 2);
        let later = program.train(200, held_bytes / 3 * 2);
        println!("{percent} % of the room, {limit_bytes:?}: {growing} calls, then {later}");
        assert!(growing < 2_000, "{percent} %: {growing} calls");
        let counted = 200 * REQUESTS_PER_STEP / 4096;
        let later_max = if percent < 80 { counted } else { 15 * 200 };
        assert!(later <= later_max, "{percent} %: {later} calls");
    }
}

#[test]
fn calls_are_not_counted_if_holes_block_requests() {
    let mut program = Program::new();
    let half = program.alloc(ROOM_BYTES / 2);
    assert!(program.is_spared_a_cut());
    program.train(50, ROOM_BYTES / 4);
    assert!(!program.is_spared_a_cut());
    // 400 MiB are small compared with the remaining capacity.
    let more = program.alloc(ROOM_BYTES / 32 * 12);
    assert!(!program.is_spared_a_cut());
    program.free(more);
    program.hit(4_096);
    program.alloc(ROOM_BYTES / 32 * 15);
    assert!(program.is_spared_a_cut());
    program.free(half);
    assert!(program.is_spared_a_cut());
    program.allocator.counts_mut().reset_peaks();
    assert!(program.is_spared_a_cut());
    assert!(!program.is_spared_a_cut());
}

/// Holes of 400 MiB, with 900 in use before. The remaining capacity is 2,000, then 500.
#[test]
fn a_call_counts_by_the_hole_that_it_spares() {
    let mut program = Program::new();
    program.alloc(ROOM_BYTES / 2);
    program.train(50, ROOM_BYTES / 4);
    program.alloc(ROOM_BYTES / 32 * 15 - 2_900 * MIB);
    assert!(!program.is_spared_a_cut());
    program.hit(4_096);
    assert!(program.is_spared_a_cut());
    assert!(!program.is_spared_a_cut());
    program.hit(4_096);
    let more = program.alloc(1_500 * MIB);
    assert!((0..3).all(|_| program.is_spared_a_cut()));
    program.free(more);
    program.allocator.counts_mut().reset_peaks();
    assert!(program.is_spared_a_cut());
    assert!(!program.is_spared_a_cut());
}

/// 4 MiB could share segments of 20 MiB.
#[test]
fn requests_that_could_share_are_counted_as_well() {
    let mut program = Program::new();
    let blocks: Vec<_> = (0..120).map(|_| program.alloc(3 * MIB)).collect();
    // These holes are too small.
    blocks.into_iter().step_by(2).for_each(|block| program.free(block));
    program.alloc(ROOM_BYTES / 2);
    let before = program.calls_count();
    for _ in 0..1_000 {
        program.alloc(4 * MIB);
    }
    let calls_count = program.calls_count() - before;
    assert!((512..620).contains(&calls_count), "{calls_count} calls");
}

/// Memory is short then, whatever the holes are.
#[test]
fn calls_are_earned_by_a_refusal_of_the_driver_or_of_the_limit() {
    for limit_bytes in [None, Some(ROOM_BYTES / 4 * 3)] {
        let mut program = Program::new();
        program.alloc(ROOM_BYTES / 2);
        program.train(50, ROOM_BYTES / 4);
        assert!(!program.is_spared_a_cut());
        program.allocator.set_limit(limit_bytes);
        program.is_refused(ROOM_BYTES / 32 * 15);
        let avoided_splits_count = (0..100).take_while(|_| program.is_spared_a_cut()).count();
        assert!(
            (15..=48).contains(&avoided_splits_count),
            "{limit_bytes:?}: {avoided_splits_count}"
        );
    }
}

#[test]
fn a_call_is_earned_by_many_requests() {
    let mut program = Program::new();
    program.alloc(ROOM_BYTES / 2);
    program.train(50, ROOM_BYTES / 4);
    assert!(!program.is_spared_a_cut());
    program.hit(4_096);
    assert!(program.is_spared_a_cut());
    assert!(!program.is_spared_a_cut());
}

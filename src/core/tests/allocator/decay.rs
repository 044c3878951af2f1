//! Memory that Note [Decay] keeps, and its cost: bytes held and calls to the driver, for programs
//! over time. Ten steps of a program take as long as a pass.

use cachealloc_core::policy::MIB;
use cachealloc_core::{
    Address, Allocation, Allocator, Policy, Pool, Request, Requester, ReuseCondition, Step,
};

const STEPS_PER_PASS: u64 = 10;
const GIB: u64 = 1 << 30;

struct Program {
    allocator: Allocator,
    end: Address,
    steps_count: u64,
}

impl Program {
    fn new() -> Program {
        Program {
            allocator: Allocator::new(Policy::default()),
            end: Address(2 * MIB),
            steps_count: 0,
        }
    }

    fn in_arenas() -> Program {
        let policy = Policy { expandable_segments: true, ..Policy::default() };
        let mut allocator = Allocator::new(policy);
        allocator.add_arena(Pool::Small, Address(1 << 53), 1 << 52);
        allocator.add_arena(Pool::Large, Address(1 << 54), 1 << 52);
        Program { allocator, end: Address(2 * MIB), steps_count: 0 }
    }

    fn alloc(&mut self, bytes: u64) -> Allocation {
        let mut request = Request::new(bytes, Requester::Context);
        loop {
            match self.allocator.poll(&mut request) {
                Step::Done(allocation) => return allocation,
                Step::Reserve { bytes } => {
                    self.allocator.reserved(&mut request, self.end, bytes);
                    self.end.0 += bytes.next_multiple_of(2 * MIB);
                }
                Step::Map(_) => self.allocator.mapped(&mut request),
                step => panic!("{step:?} without streams, and with memory to spare"),
            }
        }
    }

    /// Runs a step that allocates `all_bytes` at once, and frees them. Returns the calls to the
    /// driver.
    fn step(&mut self, all_bytes: &[u64]) -> u64 {
        let before = self.calls_count();
        let blocks: Vec<_> = all_bytes.iter().map(|bytes| self.alloc(*bytes)).collect();
        blocks.into_iter().for_each(|block| self.free(block));
        self.steps_count += 1;
        if self.steps_count.is_multiple_of(STEPS_PER_PASS) {
            self.pass();
        }
        self.calls_count() - before
    }

    fn steps(&mut self, count: u64, all_bytes: &[u64]) -> u64 {
        (0..count).map(|_| self.step(all_bytes)).sum()
    }

    /// Does nothing for `passes_count` passes.
    fn rest(&mut self, passes_count: u64) {
        self.steps(passes_count * STEPS_PER_PASS, &[]);
    }

    fn pass(&mut self) {
        if let Some(mark) = self.allocator.pass(None).due {
            self.allocator.release_idle(mark);
        }
        self.allocator.check();
    }

    /// Returns for how many passes unused memory is kept, by trying it on a copy.
    fn kept_count(&self) -> u64 {
        let mut allocator = self.allocator.clone();
        let mut passes = 0..1_000;
        // Nothing is known before that many passes.
        let first = allocator.pass(None).mark;
        let goes = |_: &u64| allocator.pass(None).due.is_some_and(|due| due >= first);
        passes.find(goes).expect("it goes some time") + 1
    }

    fn free(&mut self, block: Allocation) {
        self.allocator.free(block.block, ReuseCondition::Everywhere);
    }

    fn held_bytes(&self) -> u64 {
        self.allocator.stats().reserved_bytes.all.current
    }

    /// Returns the number of reservations and releases.
    fn calls_count(&self) -> u64 {
        let stats = self.allocator.stats();
        stats.num_device_alloc + stats.num_device_free
    }
}

/// Four square matrices.
fn matrices(side: u64) -> [u64; 4] {
    [4 * side * side; 4]
}

#[test]
fn passed_peak_is_released_and_used_memory_stays() {
    let mut program = Program::new();
    let layers = [200 * MIB, 100 * MIB, 30 * MIB, MIB];
    program.steps(50, &layers);
    program.step(&[3 * GIB, 5 * GIB, 2 * GIB]);
    assert!(program.held_bytes() > 10 * GIB);
    program.steps(5 * STEPS_PER_PASS, &layers);
    let live_bytes = layers.iter().sum::<u64>();
    assert!(program.held_bytes() * 10 <= live_bytes * 13, "{} held", program.held_bytes());
    // The program is steady from here.
    assert_eq!(program.steps(500, &layers), 0);
}

/// The memory held is the memory that the last passes used. One segment of the peak remains: the
/// small matrices are cut from it.
#[test]
fn growing_sizes_leave_no_idle_memory() {
    let mut program = Program::new();
    let sides = || (0..400).map(|step| 1_000 + 20 * step);
    let mut used_bytes = Vec::new();
    for side in sides() {
        program.step(&matrices(side));
        used_bytes.push(matrices(side).iter().sum::<u64>());
        let lately = used_bytes.iter().rev().take(5 * STEPS_PER_PASS as usize);
        let lately_bytes = lately.sum::<u64>() + 100 * MIB;
        assert!(program.held_bytes() <= lately_bytes, "{} at {side}", program.held_bytes());
    }
    let all_bytes = used_bytes.iter().sum::<u64>();
    println!("{} MiB of {} that were asked for", program.held_bytes() / MIB, all_bytes / MIB);
    program.steps(5 * STEPS_PER_PASS, &matrices(1_000));
    assert!(program.held_bytes() <= matrices(9_000)[0] + 2 * MIB, "{} held", program.held_bytes());
    program.rest(5);
    assert_eq!(program.held_bytes(), 0);
}

/// An evaluation between trainings, or a notebook: the first round costs calls, and no later one.
#[test]
fn long_period_misses_once() {
    let sizes = [300 * MIB, 40 * MIB, 12 * MIB, 3 * MIB];
    for is_in_arenas in [false, true] {
        for period in [2, 5, 20, 60, 390] {
            let mut program = if is_in_arenas { Program::in_arenas() } else { Program::new() };
            let round = |program: &mut Program| {
                let before = program.calls_count();
                program.steps(3, &sizes);
                program.rest(period);
                program.calls_count() - before
            };
            let calls: Vec<u64> = (0..8).map(|_| round(&mut program)).collect();
            println!("period of {period}: {calls:?}");
            assert!(calls[..2].iter().sum::<u64>() <= 4 * calls[0].max(4), "{period}: {calls:?}");
            assert_eq!(calls[3..], [0; 5], "{period}: {calls:?}");
        }
    }
}

/// The loop that runs beside it keeps its memory meanwhile, and does not keep the rest.
#[test]
fn long_period_beside_a_loop_misses_once() {
    let mut program = Program::new();
    let (training, evaluation) = ([100 * MIB, 50 * MIB], [700 * MIB, 300 * MIB]);
    let mut calls = Vec::new();
    for _ in 0..6 {
        let before = program.calls_count();
        program.steps(5, &evaluation);
        program.steps(60 * STEPS_PER_PASS, &training);
        calls.push(program.calls_count() - before);
    }
    assert_eq!(calls[2..], [0; 4], "{calls:?}");
}

/// Memory that is requested again after its release is kept longer from then on: half as long again
/// as the time since its last use, up to a bound.
#[test]
fn memory_is_kept_for_half_as_long_again() {
    for is_in_arenas in [false, true] {
        for unused_count in [4, 5, 30, 101, 398, 399, 400, 700] {
            let mut program = if is_in_arenas { Program::in_arenas() } else { Program::new() };
            let kept_count = |program: &mut Program| {
                program.step(&[300 * MIB]);
                let goes = |program: &mut Program| {
                    program.pass();
                    program.held_bytes() == 0
                };
                (0..1_000).find(|_| goes(program)).expect("it goes some time")
            };
            assert_eq!(kept_count(&mut program), 3);
            (3..unused_count).for_each(|_| program.pass());
            let expected = (unused_count + unused_count / 2 + 1).min(600);
            assert_eq!(kept_count(&mut program), expected, "after {unused_count}");
        }
    }
}

/// In arenas any memory serves, in whatever parts it is mapped.
#[test]
fn half_of_the_released_memory_teaches_in_any_parts() {
    for parts in [&[20, 20, 10][..], &[30, 20], &[10; 5], &[2, 48], &[48, 2]] {
        let mut program = Program::in_arenas();
        program.step(&[100 * MIB]);
        program.rest(5);
        assert_eq!(program.held_bytes(), 0);
        let (last, others) = parts.split_last().expect("parts");
        let mut held = Vec::new();
        held.extend(others.iter().map(|mib| program.alloc(mib * MIB)));
        assert_eq!(program.kept_count(), 3, "{parts:?}");
        held.push(program.alloc(last * MIB));
        assert!(program.kept_count() > 3, "{parts:?}");
    }
}

/// Released memory is known by its size, for a bounded number of sizes.
#[test]
fn returned_memory_counts_once_per_release() {
    const SIZES_MAX: u64 = 512;
    // All sizes are about equal. Their number is odd, and more than half must be requested again.
    let size = |number: u64| (1 << 42) + number * 2 * MIB;
    let teaches = |gone_count: u64, again: &mut dyn Iterator<Item = u64>| {
        let mut program = Program::new();
        program.step(&(0..gone_count).map(size).collect::<Vec<_>>());
        program.rest(5);
        assert_eq!(program.held_bytes(), 0);
        let blocks: Vec<_> = again.map(|number| program.alloc(size(number))).collect();
        let teaches = program.kept_count() > 3;
        blocks.into_iter().for_each(|block| program.free(block));
        teaches
    };
    assert!(!teaches(5, &mut (0..2)) && teaches(5, &mut (0..3)));
    assert!(!teaches(5, &mut [1; 5].into_iter()), "one of them was there before");
    let most = 2 * SIZES_MAX - 1;
    assert!(teaches(most, &mut (0..most)));
    let more = 2 * SIZES_MAX + 1;
    assert!(!teaches(more, &mut (0..more)), "too many sizes to know half of them");
}

#[test]
fn releases_are_remembered_for_900_passes() {
    for (passes_count, is_remembered) in [(900, true), (901, false)] {
        let mut program = Program::new();
        program.step(&[300 * MIB]);
        let goes = |program: &mut Program| {
            program.pass();
            program.held_bytes() == 0
        };
        (0..10).find(|_| goes(&mut program)).expect("it goes soon");
        (0..passes_count).for_each(|_| program.pass());
        let again = program.alloc(300 * MIB);
        assert_eq!(program.kept_count() > 3, is_remembered, "{passes_count}");
        program.free(again);
    }
}

/// A period longer than anything is remembered: each round costs its own calls, and no more.
#[test]
fn very_long_period_costs_only_itself() {
    let mut program = Program::new();
    for round in 0..4 {
        let before = program.calls_count();
        program.steps(3, &[300 * MIB, 40 * MIB]);
        program.rest(2_000);
        assert_eq!(program.calls_count() - before, 4, "round {round}");
        assert_eq!(program.held_bytes(), 0);
    }
}

/// Growing sizes do not lengthen the time, however many are requested.
#[test]
fn new_sizes_do_not_make_it_slower() {
    let mut program = Program::new();
    for step in 0..600 {
        program.step(&matrices(1_000 + 20 * step));
    }
    program.rest(5);
    assert_eq!(program.held_bytes(), 0);
}

/// A time set by the user is kept to.
#[test]
fn a_fixed_time_is_kept_to() {
    for passes_count in [1, 7, 3_600] {
        let mut allocator = Allocator::new(Policy::default());
        let mut passes = 0..5_000;
        let first = passes.find(|_| allocator.pass(Some(passes_count)).due.is_some());
        assert_eq!(first, Some(passes_count));
    }
}

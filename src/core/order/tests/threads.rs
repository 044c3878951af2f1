//! The real ledger under threads: visible work, and a second context that appears in between.
//!
//! Steps are coarser than in `interleave` (one method of the ledger each; `facts` is split into its
//! two halves), but cover everything at once: route, coverage, pending barriers, observers. The
//! oracle knows which launches the device had, which a barrier covers and which the host has waited
//! for.

use super::explore::{Alike, Key, Machine, Outcome, explore, programs};
use super::std;
use crate::order::exclusive::Exclusive;
use crate::order::ledger::{ContextCoverage, FreeInput, Ledger, SubmissionReading};
use crate::order::pending::PendingBarriers;
use crate::order::route::{FreeState, Mode, Route, free_context_block};
use crate::order::submission_counters::{CounterReading, Coverage, SubmissionCounters};

const THREADS: usize = 3;
const OPS_MAX: usize = 2;
const LAUNCHES_MAX: u32 = 5;
const BARRIERS_MAX: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Submit,
    /// Work that the host could see without synchronizing.
    SubmitVisible,
    Free,
    /// Takes a published block, if any, and submits work on it in a second context.
    UseElsewhere,
}

/// Order of the reads of a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactsOrder {
    MarksFirst,
    AgentsFirst,
}

/// Actions of a free once its barrier was made, as single steps of `Ledger::barrier_is_in`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnceIn {
    Note,
    Coverage,
    AskAgain,
    DoNotAsk,
}

/// Precautions of frees and second contexts; `Careful::OURS` is the real order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Careful {
    pub facts: FactsOrder,
    pub once_in: [OnceIn; 3],
    pub shower_waits: bool,
}

impl Careful {
    pub const OURS: Careful = Careful {
        facts: FactsOrder::MarksFirst,
        once_in: [OnceIn::Note, OnceIn::Coverage, OnceIn::AskAgain],
        shower_waits: true,
    };
}

#[derive(Clone, Copy, Default)]
struct Thread {
    op: u8,
    step: u8,
    /// Launches that the device had when this free began, or that used the block taken.
    needed: u8,
    needed_visible: u8,
    quiet: (bool, bool, bool),
    plain: bool,
    route: u8,
    seen: Option<SubmissionReading>,
    waits: bool,
}

#[derive(Clone, Copy)]
struct State {
    careful: Careful,
    threads: [Thread; THREADS],
    submitted: (u64, u64),
    host_visible: (u64, u64),
    plain: (u32, u64),
    covers: (u64, u64, u64),
    debts: (u64, u64, u64),
    /// Bit sets of launches.
    launch_count: u32,
    launched: u8,
    visible: u8,
    behind: u8,
    waited: u8,
    /// Launches before the record of each barrier, by barrier number.
    recorded: [u8; BARRIERS_MAX],
    /// Launches that may still run on the published blocks.
    published: Option<u8>,
}

type Program = super::explore::Program<Op, OPS_MAX>;
const FIRST: u64 = 1;
const SECOND: u64 = 2;

impl Machine for State {
    type Program = Program;
    const THREADS: usize = THREADS;
    type Key = u128;

    fn step(&self, program: &Program, thread: usize) -> Option<Result<State, &'static str>> {
        let op = (*program[thread].get(usize::from(self.threads[thread].op))?)?;
        let mut next = *self;
        let (ledger, covers) = self.real();
        let over = match op {
            Op::Submit => next.submit(&ledger, thread, false),
            Op::SubmitVisible => next.submit(&ledger, thread, true),
            Op::Free => next.free(&ledger, &covers, thread),
            Op::UseElsewhere => next.use_elsewhere(&ledger, &covers, thread),
        };
        next.keep(&ledger, &covers);
        match over {
            Err(what) => return Some(Err(what)),
            Ok(true) => {
                next.threads[thread] =
                    Thread { op: self.threads[thread].op + 1, ..Thread::default() };
            }
            Ok(false) => next.threads[thread].step += 1,
        }
        Some(Ok(next))
    }

    fn key(&self) -> u128 {
        // The state is too large for 128 bits, so it is mixed. A collision would hide states, at a
        // chance of about one in 10^20 here.
        let mut mixed = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        let mut put = |value: u64| {
            mixed = (mixed ^ u128::from(value)).wrapping_mul(0x0100_0000_0000_0000_0000_0000_013b);
            mixed ^= mixed >> 61;
        };
        for t in &self.threads {
            let mut key = Key::default();
            let (a, b, c) = t.quiet;
            let flags = [a, b, c, t.plain, t.waits, t.seen.is_some()];
            flags.into_iter().for_each(|flag| key.put(flag.into(), 1));
            key.put(t.op.into(), 2);
            key.put(t.step.into(), 4);
            key.put(t.route.into(), 2);
            key.put(t.needed.into(), LAUNCHES_MAX);
            key.put(t.needed_visible.into(), LAUNCHES_MAX);
            if let Some((a, b, number)) = t.seen.map(SubmissionReading::parts) {
                [a.0, a.1, b.0, b.1, number].into_iter().for_each(|mark| key.put(mark, 4));
            }
            put(key.finish() as u64);
        }
        let mut key = Key::default();
        for (a, b) in [self.submitted, self.host_visible] {
            key.put(a, 4);
            key.put(b, 4);
        }
        for (a, b, c) in [self.covers, self.debts] {
            [a, b, c].into_iter().for_each(|number| key.put(number, 4));
        }
        let sets = [self.launched, self.visible, self.behind, self.waited];
        sets.into_iter().for_each(|set| key.put(set.into(), LAUNCHES_MAX));
        put(key.finish() as u64);
        let mut key = Key::default();
        self.recorded.into_iter().for_each(|set| key.put(set.into(), LAUNCHES_MAX));
        key.put(self.published.map_or(0, |set| u64::from(set) + 1), LAUNCHES_MAX + 1);
        key.put(self.plain.1.min(3), 2);
        key.put(u64::from(self.plain.0), 32);
        put(key.finish() as u64);
        mixed
    }
}

impl State {
    fn real(&self) -> (Ledger, ContextCoverage) {
        let ledger = Ledger {
            submitted: SubmissionCounters::at(self.submitted.0, self.submitted.1),
            host_visible: SubmissionCounters::at(self.host_visible.0, self.host_visible.1),
            exclusive: Exclusive::at(self.plain.0, self.plain.1),
            ..Ledger::new()
        };
        let covers = ContextCoverage {
            ordered: Coverage::at(self.covers.0),
            waited: Coverage::at(self.covers.1),
            host_visible: Coverage::at(self.covers.2),
            pending_barriers: PendingBarriers::at(self.debts.0, self.debts.1, self.debts.2),
        };
        (ledger, covers)
    }

    fn keep(&mut self, ledger: &Ledger, covers: &ContextCoverage) {
        self.submitted = (ledger.submitted.begun(), ledger.submitted.ended());
        self.host_visible = (ledger.host_visible.begun(), ledger.host_visible.ended());
        self.plain = ledger.exclusive.parts();
        self.covers =
            (covers.ordered.covered(), covers.waited.covered(), covers.host_visible.covered());
        self.debts = covers.pending_barriers.parts();
    }

    fn launch(&mut self, visible: bool) {
        let bit = 1 << self.launch_count;
        self.launch_count += 1;
        self.launched |= bit;
        self.visible |= if visible { bit } else { 0 };
    }

    fn submit(&mut self, ledger: &Ledger, thread: usize, look: bool) -> Result<bool, &'static str> {
        match self.threads[thread].step {
            0 => assert!(!ledger.submits(FIRST, look), "the first context is no observer"),
            1 => self.launch(look),
            _ => ledger.submitted(look),
        }
        Ok(self.threads[thread].step == 2)
    }

    fn free(
        &mut self,
        ledger: &Ledger,
        covers: &ContextCoverage,
        thread: usize,
    ) -> Result<bool, &'static str> {
        let agents_first = self.careful.facts == FactsOrder::AgentsFirst;
        let mut t = self.threads[thread];
        match t.step {
            0 => {
                t.needed = self.launched;
                t.needed_visible = self.launched & self.visible;
                t.read_facts(ledger, covers, agents_first);
            }
            1 => {
                t.read_facts(ledger, covers, !agents_first);
                let route = free_context_block(&t.facts());
                t.route = match route {
                    Route::Publish => return self.publish(&t),
                    Route::Barrier => 0,
                    Route::Wait => 1,
                    Route::WaitNatively => 2,
                    Route::ParkOnEvent | Route::ParkForBarrier => unreachable!("{route:?}"),
                };
            }
            2 => t.seen = Some(ledger.before_barrier(covers)),
            // The driver does its own wait: no barrier, nothing to note.
            3 if t.route == 2 => t.waits = true,
            3 => {
                self.recorded[t.seen_all().number().0 as usize] = self.launched;
                t.waits = t.route == 1;
            }
            4 if t.route == 2 => self.waited |= self.launched,
            4 if t.route == 1 => {}
            4 => self.behind |= self.recorded[t.seen_all().number().0 as usize],
            5..=7 if t.route != 0 => {}
            5..=7 => match self.careful.once_in[usize::from(t.step) - 5] {
                OnceIn::Note => covers.pending_barriers.note(t.seen_all().number()),
                OnceIn::Coverage => {
                    let ((ended, begun), ..) = t.seen_all().parts();
                    covers.ordered.passed(CounterReading::new(ended, begun));
                }
                OnceIn::AskAgain => t.waits = !ledger.exclusive.is_exclusive(FIRST),
                OnceIn::DoNotAsk => {}
            },
            8 if t.waits && t.route != 2 => {
                self.waited |= self.recorded[t.seen_all().number().0 as usize];
            }
            8 => {}
            _ => {
                if t.waits {
                    covers.waited(t.seen_all());
                }
                return self.publish(&t);
            }
        }
        self.threads[thread] = t;
        Ok(false)
    }

    fn publish(&mut self, thread: &Thread) -> Result<bool, &'static str> {
        if thread.needed & !(self.behind | self.waited) != 0 {
            return Err("published while a launch is behind no barrier");
        }
        if thread.needed_visible & !self.waited != 0 {
            return Err("returned while the host could see unfinished work");
        }
        self.published = Some(self.published.unwrap_or(0) | thread.needed);
        Ok(true)
    }

    fn use_elsewhere(
        &mut self,
        ledger: &Ledger,
        covers: &ContextCoverage,
        thread: usize,
    ) -> Result<bool, &'static str> {
        let mut t = self.threads[thread];
        match t.step {
            0 => t.needed = self.published.unwrap_or(0),
            1 => t.waits = ledger.submits(SECOND, false) && self.careful.shower_waits,
            2 if t.waits => {
                t.route = 0;
                if let Some(number) = covers.pending() {
                    self.waited |= self.recorded[number.0 as usize];
                    covers.pending_barriers.complete(number);
                }
            }
            3 if t.waits => ledger.exclusive.waited(),
            2 | 3 => {}
            4 if t.needed & !self.waited != 0 => {
                return Err("a second context uses a block whose work is not over");
            }
            4 => {}
            _ => ledger.submitted(false),
        }
        self.threads[thread] = t;
        Ok(t.step == 5)
    }
}

impl Thread {
    fn read_facts(&mut self, ledger: &Ledger, covers: &ContextCoverage, agents: bool) {
        let situation = FreeInput {
            mode: Mode::Ordered,
            context_id: FIRST,
            capturing: false,
            barrier_calls: true,
            in_driver_callback: false,
        };
        let facts = ledger.facts(covers, situation);
        if agents {
            self.plain = facts.exclusive;
        } else {
            self.quiet = (facts.ordered_quiet, facts.waited_quiet, facts.visible_quiet);
        }
    }

    fn facts(&self) -> FreeState {
        let (ordered_quiet, waited_quiet, visible_quiet) = self.quiet;
        FreeState {
            mode: Mode::Ordered,
            exclusive: self.plain,
            capturing: false,
            barrier_calls: true,
            in_driver_callback: false,
            ordered_quiet,
            waited_quiet,
            visible_quiet,
            elision: true,
        }
    }

    fn seen_all(&self) -> SubmissionReading {
        self.seen.expect("the marks were read before the barrier")
    }
}

/// Explores every program of these operations on up to three threads with at most `ops_max` in all.
pub fn explore_all(careful: Careful, alphabet: &[Op], ops_max: usize) -> Outcome {
    let mut outcome = Outcome::default();
    for program in programs(alphabet, Alike::All, ops_max) {
        outcome.add(explore_one(careful, &program));
        if outcome.violation.is_some() {
            break;
        }
    }
    outcome
}

fn explore_one(careful: Careful, program: &Program) -> Outcome {
    let start = State {
        careful,
        threads: [Thread::default(); THREADS],
        submitted: (0, 0),
        host_visible: (0, 0),
        // The first context has submitted before.
        plain: (0, FIRST),
        covers: (0, 0, 0),
        debts: (0, 0, 0),
        launch_count: 0,
        launched: 0,
        visible: 0,
        behind: 0,
        waited: 0,
        recorded: [0; BARRIERS_MAX],
        published: None,
    };
    explore(program, start)
}

pub const VISIBLE: [Op; 3] = [Op::Submit, Op::SubmitVisible, Op::Free];
const ELSEWHERE: [Op; 3] = [Op::Submit, Op::Free, Op::UseElsewhere];

#[test]
fn the_ledger_holds_with_visible_work() {
    let outcome = explore_all(Careful::OURS, &VISIBLE, 4);
    std::println!("visible work: {outcome:?}");
    assert_eq!(outcome.violation, None);
}

/// Two frees, one relying on the barrier of the other, and a second context twice: the smallest
/// program where the reads of `facts` must come in the right order.
const LEANING: Program = [
    [Some(Op::Submit), Some(Op::Free)],
    [Some(Op::Free), None],
    [Some(Op::UseElsewhere), Some(Op::UseElsewhere)],
];

#[test]
fn the_ledger_holds_when_a_second_context_appears() {
    let mut outcome = explore_all(Careful::OURS, &ELSEWHERE, 4);
    outcome.add(explore_one(Careful::OURS, &LEANING));
    std::println!("second context: {outcome:?}");
    assert_eq!(outcome.violation, None);
}

#[test]
fn careless_versions_are_caught() {
    const OURS: Careful = Careful::OURS;
    let in_order = |once_in| Careful { once_in, ..OURS };
    use OnceIn::*;
    let careless = [
        ("a call that reveals an observer does not wait", Careful { shower_waits: false, ..OURS }),
        ("a free does not ask again", in_order([Note, Coverage, DoNotAsk])),
        ("asked before the barrier is noted", in_order([AskAgain, Note, Coverage])),
        ("covered before the barrier is noted", in_order([Coverage, Note, AskAgain])),
        ("agents read first", Careful { facts: FactsOrder::AgentsFirst, ..OURS }),
    ];
    for (what, careful) in careless {
        let mut outcome = explore_all(careful, &ELSEWHERE, 4);
        outcome.add(explore_one(careful, &LEANING));
        std::println!("{what}: {outcome:?}");
        assert!(outcome.violation.is_some(), "not caught: {what}");
    }
}

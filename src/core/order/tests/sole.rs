//! Barriers that put their wait off (`sole`), one step at a time, in all interleavings of three threads that launch on
//! two streams and free. Thread 0 has a lane of its own.
//!
//! The oracle: what begins after a free has published comes, on the device, behind all that the device had when the free
//! started: by a wait that is in, by the order of its stream, or because that is over.

use super::explore::{Alike, Key, Machine, Outcome, explore, programs};
use super::programs::scale;
use super::{std, whole};
use crate::order::marks::{Lane, Marks, Seen, quiet};
use crate::order::sole::{ANY_STREAM, Move, SoleStream};
use crate::rules::{Rule, rule_holds};

const THREADS: usize = 3;
const OPS_MAX: usize = 3;
const STREAMS: usize = 2;
/// Enough for every set of launches, and for their count.
const SET_BITS: u32 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// To a stream, counted from 0.
    Submit(usize),
    /// To the second stream, of which the call does not tell.
    SubmitAnywhere,
    /// Where several streams have work, each is to wait for itself.
    Free,
    /// There it puts the wait of the context in.
    FreeOfAll,
    /// A free that records an event, and waits for that itself.
    FreeThatWaits,
}

const ALL: [Op; 6] =
    [Op::Submit(0), Op::Submit(1), Op::SubmitAnywhere, Op::Free, Op::FreeOfAll, Op::FreeThatWaits];

/// Where a thread is in its operation.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Start,
    // A launch.
    Begin,
    Admit,
    Move,
    Owed,
    PayGate,
    PutIn,
    ComeBehind,
    NothingOwed,
    Paid,
    Launch,
    End,
    // A free.
    Quiet,
    Gate,
    Ended,
    Begun,
    Record,
    PutOff,
    Owe,
    AskAgain,
    OweEach,
    SayEach,
    Wait,
    NoneOwes,
    OwesNoMore,
    Forget,
    LookAgain,
    File,
    Recorded,
    Over,
    Publish,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    op: u8,
    at: At,
    begun: u64,
    ended: u64,
    /// Of a free, what it needs; of a launch, what it must come behind.
    needed: u64,
    recorded: u64,
}

/// How the rules are left out, if they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Nothing,
    /// A barrier that is owed is not asked for again once that is said (O2).
    SecondQuestion,
    /// A free that records an event does not wait for it.
    ItsWait,
}

#[derive(Clone, Copy)]
struct Run {
    left: Left,
    threads: [Thread; THREADS],
    sole: u64,
    begun: [u64; 2],
    ended: [u64; 2],
    covered: u64,
    owed: bool,
    gate: bool,
    /// What the newest event stands for, and its number.
    event: u64,
    number: u64,
    /// By stream, the number of the barrier for which it has waited last.
    behind: [u64; STREAMS],
    launched: u64,
    /// What all later work is behind.
    floor: u64,
    tails: [u64; STREAMS],
    /// What the host has waited for.
    over: u64,
    /// What the frees that have published need.
    published: u64,
}

impl Machine for Run {
    type Program = super::explore::Program<Op, OPS_MAX>;
    const THREADS: usize = THREADS;

    fn step(&self, program: &Self::Program, thread: usize) -> Option<Result<Run, &'static str>> {
        let mut next = *self;
        let mut own = next.threads[thread];
        let op = (*program[thread].get(usize::from(own.op))?)?;
        let went = match op {
            Op::Submit(stream) => next.submit(&mut own, thread, stream, stream as u64 + 1),
            Op::SubmitAnywhere => next.submit(&mut own, thread, 1, ANY_STREAM),
            Op::Free | Op::FreeOfAll | Op::FreeThatWaits => next.free(&mut own, thread, op),
        };
        match went {
            Err(what) => return Some(Err(what)),
            Ok(None) => return None,
            Ok(Some(At::Start)) => own = Thread { op: own.op + 1, ..Thread::default() },
            Ok(Some(at)) => own.at = at,
        }
        next.threads[thread] = own;
        Some(Ok(next))
    }

    fn key(&self) -> u128 {
        let mut key = Key::default();
        for thread in &self.threads {
            key.put(thread.op.into(), 2);
            key.put(thread.at as u64, 5);
            key.put(thread.begun, 3);
            key.put(thread.ended, 3);
            key.put(thread.needed, SET_BITS);
            key.put(thread.recorded, SET_BITS);
        }
        // A stream, or one of the three states counted down from the greatest number.
        key.put(if self.sole < 3 { self.sole } else { 3 + (u64::MAX - self.sole) }, 3);
        [self.begun, self.ended].as_flattened().iter().for_each(|count| key.put(*count, 3));
        key.put(self.covered, 3);
        key.put(self.owed.into(), 1);
        key.put(self.gate.into(), 1);
        let sets = [self.event, self.launched, self.floor, self.tails[0], self.tails[1]];
        sets.iter().for_each(|set| key.put(*set, SET_BITS));
        // Numbers only grow: what counts is whether a stream has waited, and for the newest.
        for behind in self.behind {
            key.put((behind != 0).into(), 1);
            key.put((behind == self.number).into(), 1);
        }
        key.put(self.over, SET_BITS);
        key.put(self.published, SET_BITS);
        key.finish()
    }
}

/// The next place; none if another thread must move before.
type Went = Result<Option<At>, &'static str>;

impl Run {
    fn marks(&self) -> Marks {
        Marks::at(self.begun[0] + self.begun[1], self.ended[0] + self.ended[1])
    }

    fn sole<T>(&mut self, call: impl FnOnce(&SoleStream) -> T) -> T {
        let sole = SoleStream::at(self.sole);
        let answer = call(&sole);
        self.sole = sole.state();
        answer
    }

    fn submit(&mut self, own: &mut Thread, thread: usize, stream: usize, handle: u64) -> Went {
        let lane = usize::from(thread != 0);
        Ok(Some(match own.at {
            At::Start => {
                own.needed = self.published;
                // The store of a plain count may be seen later than the load behind it.
                if lane == 0 { At::Admit } else { At::Begin }
            }
            At::Begin => {
                self.begun[lane] += 1;
                let admitted = lane == 0 && own.begun != 0;
                if admitted {
                    At::Launch
                } else if lane == 0 {
                    At::Move
                } else {
                    At::Admit
                }
            }
            At::Admit => {
                let admitted = self.sole(|sole| sole.admits(handle));
                own.begun = admitted.into();
                match (lane, admitted) {
                    (0, _) => At::Begin,
                    (_, true) => At::Launch,
                    (_, false) => At::Move,
                }
            }
            At::Move => match self.sole(|sole| sole.step(handle)) {
                None => At::Move,
                Some(Move::Ahead) => At::Launch,
                Some(Move::Pay | Move::ComeBehind) => At::Owed,
            },
            At::Owed if self.owed => At::PayGate,
            At::Owed => {
                self.sole(SoleStream::nothing_owed);
                At::Move
            }
            At::PayGate if self.gate => return Ok(None),
            At::PayGate => {
                self.gate = true;
                if handle == ANY_STREAM { At::PutIn } else { At::ComeBehind }
            }
            At::ComeBehind if !self.owed => {
                self.gate = false;
                At::Move
            }
            At::ComeBehind => {
                let known = self.behind[stream] >= self.number
                    || self.behind[stream] != 0 && !rule_holds(Rule::StreamsWaitForTheNewest);
                if !known && rule_holds(Rule::StreamsWaitForThemselves) {
                    self.tails[stream] |= self.event;
                    self.behind[stream] = self.number;
                }
                self.sole(SoleStream::owed_by_each);
                self.gate = false;
                At::Launch
            }
            At::PutIn => {
                if self.owed {
                    self.floor |= self.event;
                }
                At::Paid
            }
            At::Paid => {
                self.sole(SoleStream::paid);
                At::NothingOwed
            }
            At::NothingOwed => {
                self.owed = false;
                self.gate = false;
                At::Move
            }
            At::Launch => {
                let before = self.floor | self.tails[stream];
                if own.needed & !(before | self.over) != 0 {
                    return Err("a launch is not behind what a free has published");
                }
                let work = self.launched + 1;
                self.launched |= work;
                self.tails[stream] = before | work;
                At::End
            }
            _ => {
                self.ended[lane] += 1;
                At::Start
            }
        }))
    }

    fn free(&mut self, own: &mut Thread, thread: usize, op: Op) -> Went {
        let seen = Seen::new(own.ended, own.begun);
        let (waits, each) = (op == Op::FreeThatWaits, op == Op::Free);
        Ok(Some(match own.at {
            At::Start => {
                own.needed = self.launched;
                own.begun = self.marks().begun();
                At::Quiet
            }
            At::Quiet if quiet(own.begun, self.marks().ended(), self.covered) => At::Publish,
            At::Quiet => At::Gate,
            At::Gate if self.gate => return Ok(None),
            At::Gate => {
                self.gate = true;
                At::Ended
            }
            At::Ended => {
                own.ended = self.marks().ended();
                At::Begun
            }
            At::Begun => {
                own.begun = self.marks().begun();
                At::Record
            }
            At::Record => {
                own.recorded = self.launched;
                if waits { At::Recorded } else { At::PutOff }
            }
            At::PutOff if self.sole(|sole| sole.is_one()) => {
                if self.owed {
                    At::File
                } else {
                    At::Owe
                }
            }
            At::Owe => {
                self.owed = true;
                if self.left == Left::SecondQuestion { At::File } else { At::AskAgain }
            }
            At::AskAgain if self.sole(|sole| sole.is_one()) => At::File,
            At::PutOff if each => At::OweEach,
            At::PutOff | At::AskAgain => At::Wait,
            At::OweEach => {
                self.owed = true;
                At::SayEach
            }
            At::SayEach if self.sole(|sole| sole.each_owes()) => At::File,
            At::SayEach => At::Wait,
            At::Wait => {
                self.floor |= own.recorded;
                At::NoneOwes
            }
            At::NoneOwes => {
                self.sole(SoleStream::none_owes);
                At::OwesNoMore
            }
            At::OwesNoMore => {
                self.owed = false;
                At::Forget
            }
            At::Forget => {
                let lane = if thread == 0 { Lane::Own } else { Lane::Shared };
                if self.sole(|sole| sole.forgets(seen, lane)) { At::LookAgain } else { At::File }
            }
            At::LookAgain => {
                let begun = self.marks().begun();
                self.sole(|sole| sole.looks_again(begun, seen));
                At::File
            }
            At::File => {
                self.event = own.recorded;
                self.number += 1;
                self.gate = false;
                self.cover(seen);
                At::Publish
            }
            At::Recorded => {
                self.gate = false;
                At::Over
            }
            At::Over => {
                if self.left != Left::ItsWait {
                    self.over |= own.recorded;
                }
                self.cover(seen);
                At::Publish
            }
            _ => {
                self.published |= own.needed;
                At::Start
            }
        }))
    }

    fn cover(&mut self, seen: Seen) {
        self.covered = seen.covers().map_or(self.covered, |to| to.max(self.covered));
    }
}

/// What came before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    Nothing,
    /// Submissions to several streams, which are over.
    Several,
}

/// Every program of up to so many of these operations in all, or up to the first violation.
pub fn explore_all(alphabet: &[Op], before: Before, left: Left, ops_max: usize) -> Outcome {
    let (state, count) = match before {
        Before::Nothing => (SoleStream::new().state(), 0),
        Before::Several => (ANY_STREAM, 1),
    };
    let start = Run {
        left,
        threads: Default::default(),
        sole: state,
        begun: [0, count],
        ended: [0, count],
        covered: 0,
        owed: false,
        gate: false,
        event: 0,
        number: 0,
        behind: [0; STREAMS],
        launched: 0,
        floor: 0,
        tails: [0; STREAMS],
        over: 0,
        published: 0,
    };
    let mut outcome = Outcome::default();
    for program in programs(alphabet, Alike::AllButTheFirst, ops_max) {
        outcome.add(explore(&program, start));
        if outcome.violation.is_some() {
            break;
        }
    }
    outcome
}

#[test]
fn waits_that_are_put_off_hold() {
    let _whole = whole();
    let ops_max = if scale() > 1 { 5 } else { 4 };
    for before in [Before::Nothing, Before::Several] {
        let outcome = explore_all(&ALL, before, Left::Nothing, ops_max);
        std::println!("sole, {before:?} before: {outcome:?}");
        assert_eq!(outcome.violation, None);
        assert!(outcome.paths > 1_000_000, "explored too little: {outcome:?}");
    }
}

#[test]
fn a_barrier_that_does_not_ask_again_is_caught() {
    let _whole = whole();
    assert!(explore_all(&ALL, Before::Nothing, Left::SecondQuestion, 4).violation.is_some());
}

#[test]
fn a_free_that_does_not_wait_is_caught() {
    let _whole = whole();
    assert!(explore_all(&ALL, Before::Several, Left::ItsWait, 4).violation.is_some());
}

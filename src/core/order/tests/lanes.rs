//! The two lanes of the marks (Note [Lanes]): a sum is read one lane a step, in all interleavings
//! of an owner, a sharer and frees. Thread 0 counts in its own lane, the others in the shared one.

use alloc::vec::Vec;

use super::explore::{Key, Machine, Outcome, explore, sequences};
use super::{std, whole};
use crate::order::marks::{Cover, Seen, quiet};

const THREADS: usize = 3;
const OPS_MAX: usize = 3;
const LANES: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Submit,
    Free,
}

type Program = [[Option<Op>; OPS_MAX]; THREADS];

#[derive(Clone, Copy, Default)]
struct Thread {
    op: u8,
    step: u8,
    /// Launches that the device had when this free started, one bit each.
    needed: u16,
    /// Launches before this free's record.
    recorded: u16,
    begun: u64,
    ended: u64,
}

#[derive(Clone, Copy)]
struct State {
    /// The barrier reads both `ended` before both `begun`; a careless one reads lane by lane.
    ended_first: bool,
    /// A barrier covers what it read in `begun`, whether or not that had ended.
    careless_cover: bool,
    threads: [Thread; THREADS],
    begun: [u64; LANES],
    ended: [u64; LANES],
    covered: u64,
    launched: u16,
    behind: u16,
}

impl Machine for State {
    type Program = Program;
    const THREADS: usize = THREADS;

    fn step(&self, ops: &Program, thread: usize) -> Option<Result<State, &'static str>> {
        let mut next = *self;
        let op = (*ops[thread].get(usize::from(self.threads[thread].op))?)?;
        let over = match op {
            Op::Submit => Ok(next.submit(thread)),
            Op::Free => next.free(thread),
        };
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
        let mut key = Key::default();
        for thread in &self.threads {
            key.put(thread.op.into(), 2);
            key.put(thread.step.into(), 4);
            key.put(thread.needed.into(), 5);
            key.put(thread.recorded.into(), 5);
            key.put(thread.begun, 3);
            key.put(thread.ended, 3);
        }
        for lane in 0..LANES {
            key.put(self.begun[lane], 3);
            key.put(self.ended[lane], 3);
        }
        key.put(self.covered, 3);
        key.put(self.launched.into(), 5);
        key.put(self.behind.into(), 5);
        key.finish()
    }
}

impl State {
    fn submit(&mut self, thread: usize) -> bool {
        let lane = usize::from(thread != 0);
        match self.threads[thread].step {
            0 => self.begun[lane] += 1,
            1 => self.launch(),
            _ => self.ended[lane] += 1,
        }
        self.threads[thread].step == 2
    }

    fn launch(&mut self) {
        self.launched = self.launched << 1 | 1;
        // Bit 0 is the newest: the sets of all others move along.
        self.behind <<= 1;
        for thread in &mut self.threads {
            thread.needed <<= 1;
            thread.recorded <<= 1;
        }
    }

    /// `quiet_since` lane by lane, then `before_barrier` lane by lane, record, wait, cover.
    fn free(&mut self, thread: usize) -> Result<bool, &'static str> {
        let State { begun, ended, covered, launched, .. } = *self;
        let own = &mut self.threads[thread];
        match own.step {
            0 => {
                own.needed = launched;
                own.begun = begun[0];
            }
            1 => own.begun += begun[1],
            2 => own.ended = ended[0],
            3 => own.ended += ended[1],
            4 if quiet(own.begun, own.ended, covered) => return self.publish(thread),
            4 => (own.begun, own.ended) = (0, 0),
            5 => own.ended = ended[0],
            6 if self.ended_first => own.ended += ended[1],
            6 => own.begun = begun[0],
            7 if self.ended_first => own.begun = begun[0],
            7 => own.ended += ended[1],
            8 => own.begun += begun[1],
            9 => own.recorded = launched,
            10 => self.behind |= own.recorded,
            11 => {
                let seen = match self.careless_cover {
                    true => Seen::new(own.begun, own.begun),
                    false => Seen::new(own.ended, own.begun),
                };
                let cover = Cover::at(covered);
                cover.passed(seen);
                self.covered = cover.covered();
            }
            _ => return self.publish(thread),
        }
        Ok(false)
    }

    fn publish(&self, thread: usize) -> Result<bool, &'static str> {
        match self.threads[thread].needed & !self.behind {
            0 => Ok(true),
            _ => Err("published while a launch is behind no barrier"),
        }
    }
}

/// Every program with at most `ops_max` operations: the owner, a sharer, and a third thread.
fn explore_all(ended_first: bool, careless_cover: bool, ops_max: usize) -> Outcome {
    let threads = sequences([Op::Submit, Op::Free], OPS_MAX);
    let list = |ops: &Vec<Op>| core::array::from_fn(|at| ops.get(at).copied());
    let start = State {
        ended_first,
        careless_cover,
        threads: [Thread::default(); THREADS],
        begun: [0; LANES],
        ended: [0; LANES],
        covered: 0,
        launched: 0,
        behind: 0,
    };
    let mut outcome = Outcome::default();
    for owner in &threads {
        for (at, second) in threads.iter().enumerate() {
            // The two sharers are alike.
            for third in threads.iter().skip(at) {
                if owner.len() + second.len() + third.len() <= ops_max {
                    let program = [list(owner), list(second), list(third)];
                    outcome.add(explore(&program, start));
                }
            }
        }
    }
    outcome
}

#[test]
fn lanes_hold() {
    let _whole = whole();
    let outcome = explore_all(true, false, 4);
    std::println!("lanes: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > 1_000_000, "explored too little: {outcome:?}");
}

#[test]
fn a_careless_cover_is_caught() {
    let _whole = whole();
    let outcome = explore_all(true, true, 4);
    assert!(outcome.violation.is_some());
}

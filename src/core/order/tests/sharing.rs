//! Frees that share a barrier (`Debts::in_since`), one step at a time, in all interleavings: a
//! free that waited for its turn leans on the barrier of the thread before it, if that one's
//! number was taken after the free began.

use alloc::vec::Vec;

use super::explore::{Key, Machine, Outcome, explore, sequences};
use super::{std, whole};
use crate::order::debts::{BarrierNumber, Debts};

const THREADS: usize = 3;
const OPS_MAX: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Launch,
    Free,
}

type Program = [[Option<Op>; OPS_MAX]; THREADS];

/// What a free may lean on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaning {
    /// A barrier in since the free began: the real code.
    Since,
    /// Any barrier that is in.
    Any,
    /// A barrier noted before its wait is in.
    NotedEarly,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    op: u8,
    step: u8,
    /// Launches that the device had when this free started, one bit each.
    needed: u16,
    /// Launches before this free's record.
    recorded: u16,
    since: u64,
    number: u64,
}

#[derive(Clone, Copy)]
struct State {
    leaning: Leaning,
    threads: [Thread; THREADS],
    gate: bool,
    taken: u64,
    noted: u64,
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
            Op::Launch => {
                next.launch();
                Ok(true)
            }
            // Waits for its turn.
            Op::Free if self.threads[thread].step == 1 && self.gate => return None,
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
            key.put(thread.step.into(), 3);
            key.put(thread.needed.into(), 6);
            key.put(thread.recorded.into(), 6);
            key.put(thread.since, 3);
            key.put(thread.number, 3);
        }
        key.put(self.gate.into(), 1);
        key.put(self.taken, 3);
        key.put(self.noted, 3);
        key.put(self.launched.into(), 6);
        key.put(self.behind.into(), 6);
        key.finish()
    }
}

impl State {
    fn launch(&mut self) {
        self.launched = self.launched << 1 | 1;
        self.behind <<= 1;
        for thread in &mut self.threads {
            thread.needed <<= 1;
            thread.recorded <<= 1;
        }
    }

    fn free(&mut self, thread: usize) -> Result<bool, &'static str> {
        let debts = Debts::at(self.taken, self.noted, 0);
        let early = self.leaning == Leaning::NotedEarly;
        let State { launched, leaning, .. } = *self;
        let own = &mut self.threads[thread];
        match own.step {
            0 => {
                own.needed = launched;
                own.since = debts.taken();
            }
            1 => self.gate = true,
            2 => {
                let since = if leaning == Leaning::Any { 0 } else { own.since };
                if debts.in_since(since).is_some() {
                    self.gate = false;
                    return self.publish(thread);
                }
                own.number = debts.take().0;
                if early {
                    debts.note(BarrierNumber(own.number));
                }
            }
            3 => own.recorded = launched,
            4 => self.behind |= own.recorded,
            5 => {
                debts.note(BarrierNumber(own.number));
                self.gate = false;
            }
            _ => return self.publish(thread),
        }
        (self.taken, self.noted, _) = debts.parts();
        // Without the gate another free may look between the note and the wait.
        if early && self.threads[thread].step == 2 {
            self.gate = false;
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

fn explore_all(leaning: Leaning, ops_max: usize) -> Outcome {
    let threads = sequences([Op::Launch, Op::Free], OPS_MAX);
    let list = |ops: &Vec<Op>| core::array::from_fn(|at| ops.get(at).copied());
    let start = State {
        leaning,
        threads: [Thread::default(); THREADS],
        gate: false,
        taken: 0,
        noted: 0,
        launched: 0,
        behind: 0,
    };
    let mut outcome = Outcome::default();
    for (at, first) in threads.iter().enumerate() {
        for (next, second) in threads.iter().enumerate().skip(at) {
            for third in threads.iter().skip(next) {
                if first.len() + second.len() + third.len() <= ops_max {
                    outcome.add(explore(&[list(first), list(second), list(third)], start));
                }
            }
        }
    }
    outcome
}

#[test]
fn shared_barriers_hold() {
    let _whole = whole();
    let outcome = explore_all(Leaning::Since, 6);
    std::println!("sharing: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > 100_000, "explored too little: {outcome:?}");
}

#[test]
fn careless_leaning_is_caught() {
    let _whole = whole();
    for leaning in [Leaning::Any, Leaning::NotedEarly] {
        assert!(explore_all(leaning, 6).violation.is_some());
    }
}

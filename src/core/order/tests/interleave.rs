//! Marks and covers, one atomic operation a step, in all interleavings of two or three threads.
//!
//! The oracle knows what the marks cannot know: which launches the device had when the free
//! started (that is more than "had returned": a kernel may be seen to run before its launch
//! returns), and which barriers stand behind which launches. A free must not publish its block
//! while one of these launches is behind no barrier whose wait is in.

use alloc::vec;
use alloc::vec::Vec;

use super::explore::{Key, Machine, Outcome, explore, sequences};
use super::{std, whole};
use crate::order::marks::{Cover, Lane, Marks, Seen, quiet};

const THREADS: usize = 3;
const OPS_MAX: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Submit,
    Free,
}

/// How submissions and frees are marked. `Protocol::OURS` calls the real code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// The begin mark stands before the real launch, the end mark after it.
    begin_before: bool,
    end_after: bool,
    /// The barrier reads `ended` first, then `begun`.
    ended_first: bool,
    /// The barrier reads its marks before it is recorded, not after.
    seen_before_record: bool,
    /// Covered only if all begun had ended (the condition of `passed`).
    needs_seen: bool,
    /// Covered up to `ended`, not up to `begun`.
    covers_ended: bool,
    /// Skipping asks for `begun == ended` too.
    quiet_needs_ended: bool,
    /// The cover passes only when the wait is in.
    passed_after_wait: bool,
    /// The marks are a flag, not counters: set by launches, cleared by a barrier where it would
    /// otherwise read its marks.
    flag: bool,
}

impl Protocol {
    pub const OURS: Protocol = Protocol {
        begin_before: true,
        end_after: true,
        ended_first: true,
        seen_before_record: true,
        needs_seen: true,
        covers_ended: true,
        quiet_needs_ended: true,
        passed_after_wait: true,
        flag: false,
    };
}

#[derive(Clone, Copy, Default)]
struct Thread {
    op: u8,
    step: u8,
    /// Launches that the device had when this free started.
    needed: u16,
    /// Launches before this free's record.
    recorded: u16,
    begun: u64,
    ended: u64,
}

#[derive(Clone, Copy)]
struct State {
    protocol: Protocol,
    threads: [Thread; THREADS],
    begun: u64,
    ended: u64,
    covered: u64,
    launched: u16,
    /// Launches behind a barrier whose wait is in.
    behind: u16,
}

impl Machine for State {
    type Program = Program;
    const THREADS: usize = THREADS;

    fn step(&self, ops: &Program, thread: usize) -> Option<Result<State, &'static str>> {
        let mut next = *self;
        let op = (*ops[thread].get(usize::from(self.threads[thread].op))?)?;
        let over = match op {
            Op::Submit => next.submit(thread),
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
        key.put(self.begun, 3);
        key.put(self.ended, 3);
        key.put(self.covered, 3);
        key.put(self.launched.into(), 5);
        key.put(self.behind.into(), 5);
        key.finish()
    }
}

impl State {
    fn submit(&mut self, thread: usize) -> Result<bool, &'static str> {
        let Protocol { begin_before, end_after, .. } = self.protocol;
        match (self.threads[thread].step, begin_before, end_after) {
            (0, true, true) => self.begin(),
            (0, true, false) => self.begin_and_end(),
            (0, false, _) => self.launch(),
            (1, true, _) => self.launch(),
            (1, false, _) => self.begin_and_end(),
            (2, true, true) => self.end(),
            _ => {}
        }
        let last = if begin_before && end_after { 2 } else { 1 };
        Ok(self.threads[thread].step == last)
    }

    fn begin(&mut self) {
        let marks = Marks::at(self.begun, self.ended);
        marks.begin(Lane::Shared);
        self.begun = if self.protocol.flag { 1 } else { marks.begun() };
    }

    fn end(&mut self) {
        let marks = Marks::at(self.begun, self.ended);
        marks.end(Lane::Shared);
        if self.protocol.flag {
            self.begun = 1;
        } else {
            self.ended = marks.ended();
        }
    }

    fn begin_and_end(&mut self) {
        self.begin();
        self.end();
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

    /// Reads for the skip, then barrier: mark reads, record, wait, cover.
    fn free(&mut self, thread: usize) -> Result<bool, &'static str> {
        match self.threads[thread].step {
            0 => {
                self.threads[thread].needed = self.launched;
                self.threads[thread].begun = Marks::at(self.begun, self.ended).begun();
            }
            1 => self.threads[thread].ended = Marks::at(self.begun, self.ended).ended(),
            2 => {
                if self.decide(&self.threads[thread]) {
                    return self.publish(thread);
                }
            }
            3 if !self.protocol.seen_before_record => self.record(thread),
            3 => self.read_mark(thread, self.protocol.ended_first),
            4 if !self.protocol.seen_before_record => {
                self.read_mark(thread, self.protocol.ended_first)
            }
            4 => self.read_mark(thread, !self.protocol.ended_first),
            5 if !self.protocol.seen_before_record => {
                self.read_mark(thread, !self.protocol.ended_first)
            }
            5 => self.record(thread),
            6 if self.protocol.passed_after_wait => self.wait(thread),
            6 => self.pass(thread),
            7 if self.protocol.passed_after_wait => self.pass(thread),
            7 => self.wait(thread),
            _ => return self.publish(thread),
        }
        Ok(false)
    }

    fn decide(&self, thread: &Thread) -> bool {
        if self.protocol.flag {
            return self.begun == 0;
        }
        let covered = Cover::at(self.covered).covered();
        if self.protocol == Protocol::OURS {
            return quiet(thread.begun, thread.ended, covered);
        }
        let ended_too = thread.begun == thread.ended || !self.protocol.quiet_needs_ended;
        ended_too && thread.begun == covered
    }

    fn read_mark(&mut self, thread: usize, ended: bool) {
        if self.protocol.flag {
            self.begun = 0;
        } else if ended {
            self.threads[thread].ended = Marks::at(self.begun, self.ended).ended();
        } else {
            self.threads[thread].begun = Marks::at(self.begun, self.ended).begun();
        }
    }

    fn record(&mut self, thread: usize) {
        self.threads[thread].recorded = self.launched;
    }

    fn wait(&mut self, thread: usize) {
        self.behind |= self.threads[thread].recorded;
    }

    fn pass(&mut self, thread: usize) {
        let Thread { begun, ended, .. } = self.threads[thread];
        let cover = Cover::at(self.covered);
        if self.protocol == Protocol::OURS {
            cover.passed(Seen::new(ended, begun));
        } else if begun == ended || !self.protocol.needs_seen {
            let covered = if self.protocol.covers_ended { ended } else { begun };
            cover.passed(Seen::new(covered, covered));
        }
        self.covered = cover.covered();
    }

    fn publish(&self, thread: usize) -> Result<bool, &'static str> {
        match self.threads[thread].needed & !self.behind {
            0 => Ok(true),
            _ => Err("published while a launch is behind no barrier"),
        }
    }
}

/// Explores every program of up to three threads and `ops_max` operations in all.
pub fn explore_all(protocol: Protocol, ops_max: usize) -> Outcome {
    let mut outcome = Outcome::default();
    for ops in programs(ops_max) {
        let start = State {
            protocol,
            threads: [Thread::default(); THREADS],
            begun: 0,
            ended: 0,
            covered: 0,
            launched: 0,
            behind: 0,
        };
        outcome.add(explore(&ops, start));
        if outcome.violation.is_some() {
            break;
        }
    }
    outcome
}

type Program = [[Option<Op>; OPS_MAX]; THREADS];

/// All programs; threads are alike, so only sorted ones.
fn programs(ops_max: usize) -> Vec<Program> {
    let threads = sequences([Op::Submit, Op::Free], OPS_MAX);
    let list = |ops: &Vec<Op>| core::array::from_fn(|at| ops.get(at).copied());
    let mut programs = vec![];
    for (i, a) in threads.iter().enumerate() {
        for (j, b) in threads.iter().enumerate().skip(i) {
            for c in threads.iter().skip(j) {
                if a.len() + b.len() + c.len() <= ops_max {
                    programs.push([list(a), list(b), list(c)]);
                }
            }
        }
    }
    programs
}

#[test]
fn counters_hold() {
    let _whole = whole();
    let outcome = explore_all(Protocol::OURS, 5);
    std::println!("marks: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > 1_000_000, "explored too little: {outcome:?}");
}

/// Each of these was somebody's first idea (hazards 11 and 26).
#[test]
fn careless_versions_are_caught() {
    let _whole = whole();
    const OURS: Protocol = Protocol::OURS;
    const FLAG: Protocol = Protocol { flag: true, ..OURS };
    let careless = [
        ("flag set before and after, cleared before the record", FLAG),
        ("flag cleared after the record", Protocol { seen_before_record: false, ..FLAG }),
        ("flag set before the launch only", Protocol { end_after: false, ..FLAG }),
        ("flag set after the launch only", Protocol { begin_before: false, ..FLAG }),
        ("counted before the launch only", Protocol { end_after: false, ..OURS }),
        ("counted after the launch only", Protocol { begin_before: false, ..OURS }),
        ("marks read after the record", Protocol { seen_before_record: false, ..OURS }),
        ("covered before the wait is in", Protocol { passed_after_wait: false, ..OURS }),
        (
            "covered up to begun, without asking whether all had ended",
            Protocol { covers_ended: false, needs_seen: false, ..OURS },
        ),
    ];
    for (what, protocol) in careless {
        let outcome = explore_all(protocol, 5);
        std::println!("{what}: {outcome:?}");
        assert!(outcome.violation.is_some(), "not caught: {what}");
    }
}

/// Any *one* of three checks may go, because the counters only grow: a cover of s, taken from
/// `ended` before the record, and `begun == s` now, already say that nothing was in between. They
/// stay: each is one load, and a count that went wrong then errs towards the barrier.
#[test]
fn single_checks_are_redundant() {
    let _whole = whole();
    const OURS: Protocol = Protocol::OURS;
    let redundant = [
        ("skip without begun == ended", Protocol { quiet_needs_ended: false, ..OURS }),
        ("begun read before ended", Protocol { ended_first: false, ..OURS }),
        ("passed without the condition", Protocol { needs_seen: false, ..OURS }),
        (
            "none of the three",
            Protocol { needs_seen: false, ended_first: false, quiet_needs_ended: false, ..OURS },
        ),
    ];
    for (what, protocol) in redundant {
        let outcome = explore_all(protocol, 5);
        assert_eq!(outcome.violation, None, "{what}");
    }
}

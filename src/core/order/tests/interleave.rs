//! Submission counters and coverage, one atomic operation a step, in all interleavings of two or
//! three threads.

use super::explore::{Alike, Key, Outcome};
use super::frees::{self, Progress, Scheme, Step, Turn};
use super::{std, tier};
use crate::order::submission_counters::{
    CounterReading, Coverage, Lane, SubmissionCounters, quiet,
};

/// Protocol by which submissions and frees are counted. `Protocol::OURS` calls the real code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// The begin count precedes the real launch, and the end count follows it.
    begin_before: bool,
    end_after: bool,
    /// The barrier reads `ended` first, then `begun`.
    ended_first: bool,
    /// The barrier reads the counters before it is recorded, not after.
    seen_before_record: bool,
    /// Work is covered only if all begun submissions had ended (the condition of `passed`).
    needs_seen: bool,
    /// Work is covered up to `ended`, not up to `begun`.
    covers_ended: bool,
    /// Skipping also requires `begun == ended`.
    quiet_needs_ended: bool,
    /// The coverage advances only after the wait was submitted.
    passed_after_wait: bool,
    /// A flag replaces the counters: launches set it, and a barrier clears it where it would
    /// otherwise read the counters.
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

#[derive(Clone, Copy)]
struct Counters {
    protocol: Protocol,
    begun: u64,
    ended: u64,
    covered: u64,
}

impl Scheme for Counters {
    fn submit(&mut self, turn: &mut Turn) -> Step {
        let Protocol { begin_before, end_after, .. } = self.protocol;
        match (turn.step, begin_before, end_after) {
            (0, true, true) => self.begin(),
            (0, true, false) => self.begin_and_end(),
            (0, false, _) => turn.launch(),
            (1, true, _) => turn.launch(),
            (1, false, _) => self.begin_and_end(),
            (2, true, true) => self.end(),
            _ => {}
        }
        let last = if begin_before && end_after { 2 } else { 1 };
        Ok(if turn.step == last { Progress::Done } else { Progress::More })
    }

    /// Reads for the skip, then makes a barrier: counter reads, record, wait, cover.
    fn free(&mut self, turn: &mut Turn) -> Step {
        let Protocol { ended_first, seen_before_record, passed_after_wait, .. } = self.protocol;
        match turn.step {
            0 => {
                turn.free_starts();
                turn.read[BEGUN] = self.counters().begun();
            }
            1 => turn.read[ENDED] = self.counters().ended(),
            2 if self.decide(turn) => return turn.publish(),
            2 => {}
            3 if !seen_before_record => turn.record(),
            3 => self.read_mark(turn, ended_first),
            4 if !seen_before_record => self.read_mark(turn, ended_first),
            4 => self.read_mark(turn, !ended_first),
            5 if !seen_before_record => self.read_mark(turn, !ended_first),
            5 => turn.record(),
            6 if passed_after_wait => turn.wait(),
            6 => self.pass(turn),
            7 if passed_after_wait => self.pass(turn),
            7 => turn.wait(),
            _ => return turn.publish(),
        }
        Ok(Progress::More)
    }

    fn put(&self, key: &mut Key) {
        key.put(self.begun, 3);
        key.put(self.ended, 3);
        key.put(self.covered, 3);
    }
}

/// Slots in which a free keeps the values it read.
const BEGUN: usize = 0;
const ENDED: usize = 1;

impl Counters {
    fn counters(&self) -> SubmissionCounters {
        SubmissionCounters::at(self.begun, self.ended)
    }

    fn begin(&mut self) {
        let counters = self.counters();
        counters.begin(Lane::Shared);
        self.begun = if self.protocol.flag { 1 } else { counters.begun() };
    }

    fn end(&mut self) {
        let counters = self.counters();
        counters.end(Lane::Shared);
        if self.protocol.flag {
            self.begun = 1;
        } else {
            self.ended = counters.ended();
        }
    }

    fn begin_and_end(&mut self) {
        self.begin();
        self.end();
    }

    fn decide(&self, turn: &Turn) -> bool {
        if self.protocol.flag {
            return self.begun == 0;
        }
        let [begun, ended] = *turn.read;
        let covered = Coverage::at(self.covered).covered();
        if self.protocol == Protocol::OURS {
            return quiet(begun, ended, covered);
        }
        let ended_too = begun == ended || !self.protocol.quiet_needs_ended;
        ended_too && begun == covered
    }

    fn read_mark(&mut self, turn: &mut Turn, ended: bool) {
        if self.protocol.flag {
            self.begun = 0;
        } else if ended {
            turn.read[ENDED] = self.counters().ended();
        } else {
            turn.read[BEGUN] = self.counters().begun();
        }
    }

    fn pass(&mut self, turn: &Turn) {
        let [begun, ended] = *turn.read;
        let cover = Coverage::at(self.covered);
        if self.protocol == Protocol::OURS {
            cover.passed(CounterReading::new(ended, begun));
        } else if begun == ended || !self.protocol.needs_seen {
            let covered = if self.protocol.covers_ended { ended } else { begun };
            cover.passed(CounterReading::new(covered, covered));
        }
        self.covered = cover.covered();
    }
}

/// Explores every program of up to three threads and `ops_max` operations in all.
pub fn explore_all(protocol: Protocol, ops_max: usize) -> Outcome {
    let start = Counters { protocol, begun: 0, ended: 0, covered: 0 };
    frees::explore_all(start, Alike::All, ops_max)
}

#[test]
fn counters_hold() {
    let outcome = explore_all(Protocol::OURS, tier::count(4, 5));
    std::println!("marks: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > tier::count(10_000, 1_000_000), "explored too little: {outcome:?}");
}

/// Plausible but wrong variants (hazards 11 and 26).
#[test]
fn careless_versions_are_caught() {
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

/// Any *one* of three checks may be left out, because the counters only grow: a coverage of s,
/// taken from `ended` before the record, and `begun == s` now, already imply that nothing was in
/// between. The checks stay, except on the shortest path of a free (`nothing_begun_since`): each is
/// one load, and a wrong count then errs towards the barrier.
#[test]
fn single_checks_are_redundant() {
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
        let outcome = explore_all(protocol, tier::count(4, 5));
        assert_eq!(outcome.violation, None, "{what}");
    }
}

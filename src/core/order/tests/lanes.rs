//! The two lanes of the submission counters (Note [Lanes]): a sum is read one lane a step, in all
//! interleavings of an owner, a sharer and frees. Thread 0 counts in its own lane, the others in
//! the shared one.

use super::explore::{Alike, Key, Outcome};
use super::frees::{self, Progress, Scheme, Step, Turn};
use super::std;
use crate::order::submission_counters::{CounterReading, Coverage, quiet};

const LANES: usize = 2;

#[derive(Clone, Copy, Default)]
struct Lanes {
    /// Whether a barrier covers the value it read in `begun`, even if not all of it had ended.
    careless_cover: bool,
    begun: [u64; LANES],
    ended: [u64; LANES],
    covered: u64,
}

impl Scheme for Lanes {
    fn submit(&mut self, turn: &mut Turn) -> Step {
        let lane = usize::from(turn.thread != 0);
        match turn.step {
            0 => self.begun[lane] += 1,
            1 => turn.launch(),
            _ => {
                self.ended[lane] += 1;
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    /// Runs `quiet_since` lane by lane, then `before_barrier` lane by lane, record, wait, cover.
    fn free(&mut self, turn: &mut Turn) -> Step {
        let Lanes { begun, ended, covered, .. } = *self;
        let [own_begun, own_ended] = &mut *turn.read;
        match turn.step {
            0 => {
                *own_begun = begun[0];
                turn.free_starts();
            }
            1 => *own_begun += begun[1],
            2 => *own_ended = ended[0],
            3 => *own_ended += ended[1],
            4 if quiet(*own_begun, *own_ended, covered) => return turn.publish(),
            4 => *turn.read = [0, 0],
            5 => *own_ended = ended[0],
            6 => *own_ended += ended[1],
            7 => *own_begun = begun[0],
            8 => *own_begun += begun[1],
            9 => turn.record(),
            10 => turn.wait(),
            11 => {
                let ended = if self.careless_cover { *own_begun } else { *own_ended };
                let cover = Coverage::at(covered);
                cover.passed(CounterReading::new(ended, *own_begun));
                self.covered = cover.covered();
            }
            _ => return turn.publish(),
        }
        Ok(Progress::More)
    }

    fn put(&self, key: &mut Key) {
        for lane in 0..LANES {
            key.put(self.begun[lane], 3);
            key.put(self.ended[lane], 3);
        }
        key.put(self.covered, 3);
    }
}

/// Explores every program with at most four operations: the owner, and two sharers that are alike.
fn explore_all(careless_cover: bool) -> Outcome {
    frees::explore_all(Lanes { careless_cover, ..Lanes::default() }, Alike::AllButTheFirst, 4)
}

#[test]
fn lanes_hold() {
    let outcome = explore_all(false);
    std::println!("lanes: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > 1_000_000, "explored too little: {outcome:?}");
}

#[test]
fn a_careless_cover_is_caught() {
    assert!(explore_all(true).violation.is_some());
}

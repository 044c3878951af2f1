//! Frees that share a barrier (`PendingBarriers::in_since`), one step at a time, in all
//! interleavings. A free that waited for the barrier lock uses the barrier of the previous holder,
//! if the number of that barrier was taken after the free began.

use super::explore::{Alike, Key, Outcome};
use super::frees::{self, Progress, Scheme, Step, Turn};
use super::std;
use crate::order::pending::{BarrierNumber, PendingBarriers};

/// Which barrier a free may share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaning {
    /// A barrier made since the free began: the real code.
    Since,
    /// Any barrier that was made.
    Any,
    /// A barrier noted before its wait was submitted.
    NotedEarly,
}

#[derive(Clone, Copy)]
struct Sharing {
    leaning: Leaning,
    barrier_lock: bool,
    taken: u64,
    noted: u64,
}

impl Scheme for Sharing {
    fn submit(&mut self, turn: &mut Turn) -> Step {
        turn.launch();
        Ok(Progress::Done)
    }

    fn free(&mut self, turn: &mut Turn) -> Step {
        let debts = PendingBarriers::at(self.taken, self.noted, 0);
        let early = self.leaning == Leaning::NotedEarly;
        let [own_since, own_number] = &mut *turn.read;
        match turn.step {
            0 => {
                *own_since = debts.taken();
                turn.free_starts();
            }
            1 if self.barrier_lock => return Ok(Progress::Waits),
            1 => self.barrier_lock = true,
            2 => {
                let since = if self.leaning == Leaning::Any { 0 } else { *own_since };
                if debts.in_since(since).is_some() {
                    self.barrier_lock = false;
                    return turn.publish();
                }
                *own_number = debts.take().0;
                if early {
                    debts.note(BarrierNumber(*own_number));
                    // Without the barrier lock another free may read between the note and the wait.
                    self.barrier_lock = false;
                }
            }
            3 => turn.record(),
            4 => turn.wait(),
            5 => {
                debts.note(BarrierNumber(*own_number));
                self.barrier_lock = false;
            }
            _ => return turn.publish(),
        }
        (self.taken, self.noted, _) = debts.parts();
        Ok(Progress::More)
    }

    fn put(&self, key: &mut Key) {
        key.put(self.barrier_lock.into(), 1);
        key.put(self.taken, 3);
        key.put(self.noted, 3);
    }
}

/// Explores every program with at most six operations.
fn explore_all(leaning: Leaning) -> Outcome {
    frees::explore_all(Sharing { leaning, barrier_lock: false, taken: 0, noted: 0 }, Alike::All, 6)
}

#[test]
fn shared_barriers_hold() {
    let outcome = explore_all(Leaning::Since);
    std::println!("sharing: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > 100_000, "explored too little: {outcome:?}");
}

#[test]
fn careless_leaning_is_caught() {
    for leaning in [Leaning::Any, Leaning::NotedEarly] {
        assert!(explore_all(leaning).violation.is_some());
    }
}

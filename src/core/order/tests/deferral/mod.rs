//! Barriers that defer their wait (`deferral`), one step at a time, in all interleavings of three
//! threads that launch on two streams and free. Thread 0 counts in a separate lane.
//!
//! Further explorations have two contexts, each with its barrier lock (`deferring_context`). At the
//! start, the work of a third context has completed and the two have done nothing yet, or the first
//! one has a deferred wait and ends.

mod frees;
mod machine;
mod submissions;

use super::explore::{Alike, Outcome, explore, programs};
use super::programs::scale;
use super::{std, tier};
use machine::{OPS_MAX, Run};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Launches on a stream, counted from 0: two of the first context, then two of the second one.
    Submit(usize),
    /// Launches on the second stream, which the call does not name.
    SubmitAnywhere,
    /// A call on a stream in a host function, where the driver refuses every wait and all work on
    /// memory: what it accepts, as the record of an event, needs no order.
    Refused(usize),
    /// A free that lets each stream wait for itself where several streams have work.
    Free,
    /// A free that submits the wait of the context where several streams have work.
    FreeOfAll,
    /// A free that records an event and waits for it itself.
    FreeThatWaits,
    /// `Free` in the second context.
    FreeElsewhere,
    /// `FreeOfAll` in the second context.
    FreeOfAllElsewhere,
    /// Ends the first context.
    End,
    /// Flushes every deferred wait, and launches nothing.
    PayAll,
}

const ALL: [Op; 6] =
    [Op::Submit(0), Op::Submit(1), Op::SubmitAnywhere, Op::Free, Op::FreeOfAll, Op::FreeThatWaits];

/// A host function beside frees of both kinds.
const CALLBACK: [Op; 5] = [Op::Submit(0), Op::Submit(1), Op::Refused(1), Op::Free, Op::FreeOfAll];

/// Two contexts, only one of which works.
pub const BESIDE: [Op; 5] =
    [Op::Submit(0), Op::Submit(1), Op::Free, Op::FreeElsewhere, Op::FreeOfAllElsewhere];

/// One context ends, and the other one begins to work.
const END: [Op; 5] = [Op::PayAll, Op::End, Op::Submit(2), Op::FreeElsewhere, Op::Submit(3)];

/// Which of the rules is left out, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Nothing,
    /// A free does not check the barrier's condition again after publishing the deferred state
    /// (O2).
    SecondQuestion,
    /// A free that records an event does not wait for it.
    ItsWait,
    /// A thread that has waited for a barrier lock flushes for that context, whichever context has
    /// the deferred wait by then (W2).
    DebtorUnderGate,
}

/// State before the explored program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    Nothing,
    /// Submissions to several streams, which have completed.
    Several,
    /// Submissions of a context that has ended. Submissions are watched because there are two
    /// contexts.
    Ended,
    /// The first of two contexts has launched on one stream, and a free has deferred its wait.
    Owed,
}

/// Explores every program of up to `ops_max` of these operations in all, or up to the first
/// violation.
pub fn explore_all(alphabet: &[Op], before: Before, left: Left, ops_max: usize) -> Outcome {
    let start = Run::behind(before, left);
    let mut outcome = Outcome::default();
    let all = programs(alphabet, Alike::AllButTheFirst, ops_max);
    // With a wait deferred already, few operations are needed, but of many kinds.
    for program in all.iter().filter(|program| before != Before::Owed || has_each_once(program)) {
        outcome.add(explore(program, start));
        if outcome.violation.is_some() {
            break;
        }
    }
    outcome
}

fn has_each_once(program: &[[Option<Op>; OPS_MAX]; 3]) -> bool {
    let ops: std::vec::Vec<Op> = program.as_flattened().iter().flatten().copied().collect();
    (1..ops.len()).all(|at| !ops[..at].contains(&ops[at]))
}

#[test]
fn deferred_waits_hold() {
    let ops_max = if scale() > 1 { 5 } else { tier::count(3, 4) };
    for before in [Before::Nothing, Before::Several] {
        let outcome = explore_all(&ALL, before, Left::Nothing, ops_max);
        std::println!("sole, {before:?} before: {outcome:?}");
        assert_eq!(outcome.violation, None);
        assert!(outcome.paths > tier::count(1_000, 1_000_000), "explored too little: {outcome:?}");
    }
}

/// A wait that the driver refuses in a host function is left to the next submission.
#[test]
fn refused_waits_stay_deferred() {
    let ops_max = if scale() > 1 { 5 } else { tier::count(3, 4) };
    for before in [Before::Nothing, Before::Several] {
        let outcome = explore_all(&CALLBACK, before, Left::Nothing, ops_max);
        std::println!("sole, beside a host function, {before:?} before: {outcome:?}");
        assert_eq!(outcome.violation, None);
        assert!(outcome.paths > tier::count(1_000, 1_000_000), "explored too little: {outcome:?}");
    }
}

/// No barrier of another context drops the deferred wait of a context.
#[test]
fn failed_context_keeps_its_barriers() {
    let ops_max = if scale() > 1 { 5 } else { tier::count(3, 4) };
    let outcome = explore_all(&BESIDE, Before::Ended, Left::Nothing, ops_max);
    std::println!("sole, beside another context: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > tier::count(1_000, 1_000_000), "explored too little: {outcome:?}");
}

/// A thread that is about to flush for a context that ends does not drop the wait either.
#[test]
#[ignore = "long tier"]
fn ending_context_keeps_its_barriers() {
    let outcome = explore_all(&END, Before::Owed, Left::Nothing, END.len());
    std::println!("sole, where a context ends: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > 1_000_000, "explored too little: {outcome:?}");
}

#[test]
fn a_barrier_that_does_not_ask_again_is_caught() {
    assert!(explore_all(&ALL, Before::Nothing, Left::SecondQuestion, 4).violation.is_some());
}

#[test]
fn a_free_that_does_not_wait_is_caught() {
    assert!(explore_all(&ALL, Before::Several, Left::ItsWait, 4).violation.is_some());
}

#[test]
fn flush_of_an_ended_context_is_caught() {
    assert!(explore_all(&END, Before::Owed, Left::DebtorUnderGate, END.len()).violation.is_some());
}

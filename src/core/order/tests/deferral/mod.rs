//! Barriers that put their wait off (`deferral`), one step at a time, in all interleavings of three
//! threads that launch on two streams and free. Thread 0 has a lane of its own.
//!
//! Then with two contexts, each with its gate (`deferring_context`): the work of a third one is
//! over and the two have done nothing yet, or the first one owes a wait and ends.

mod frees;
mod machine;
mod submissions;

use super::explore::{Alike, Outcome, explore, programs};
use super::programs::scale;
use super::{std, tier};
use machine::{OPS_MAX, Run};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// To a stream, counted from 0: two of the first context, then two of the second one.
    Submit(usize),
    /// To the second stream, of which the call does not tell.
    SubmitAnywhere,
    /// Where several streams have work, each is to wait for itself.
    Free,
    /// There it puts the wait of the context in.
    FreeOfAll,
    /// A free that records an event, and waits for that itself.
    FreeThatWaits,
    /// As `Free`, in the second context.
    FreeElsewhere,
    /// As `FreeOfAll`, in the second context.
    FreeOfAllElsewhere,
    /// The first context ends.
    End,
    /// Pays whatever is owed, and launches nothing.
    PayAll,
}

const ALL: [Op; 6] =
    [Op::Submit(0), Op::Submit(1), Op::SubmitAnywhere, Op::Free, Op::FreeOfAll, Op::FreeThatWaits];

/// Two contexts, of which one works.
pub const BESIDE: [Op; 5] =
    [Op::Submit(0), Op::Submit(1), Op::Free, Op::FreeElsewhere, Op::FreeOfAllElsewhere];

/// One ends, and the other one begins to work.
const END: [Op; 5] = [Op::PayAll, Op::End, Op::Submit(2), Op::FreeElsewhere, Op::Submit(3)];

/// How the rules are left out, if they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Nothing,
    /// A barrier that is owed is not asked for again once that is said (O2).
    SecondQuestion,
    /// A free that records an event does not wait for it.
    ItsWait,
    /// A thread that has waited for a gate pays for that context, whichever owes by then (W2).
    DebtorUnderGate,
}

/// What came before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    Nothing,
    /// Submissions to several streams, which are over.
    Several,
    /// Those of a context that has ended. Submissions are watched: there are two contexts.
    Ended,
    /// The first of two contexts has launched on one stream, and a free has put its wait off.
    Owed,
}

/// Every program of up to so many of these operations in all, or up to the first violation.
pub fn explore_all(alphabet: &[Op], before: Before, left: Left, ops_max: usize) -> Outcome {
    let start = Run::behind(before, left);
    let mut outcome = Outcome::default();
    let all = programs(alphabet, Alike::AllButTheFirst, ops_max);
    // What is owed already needs few operations, but of many kinds.
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
fn waits_that_are_put_off_hold() {
    let ops_max = if scale() > 1 { 5 } else { tier::count(3, 4) };
    for before in [Before::Nothing, Before::Several] {
        let outcome = explore_all(&ALL, before, Left::Nothing, ops_max);
        std::println!("sole, {before:?} before: {outcome:?}");
        assert_eq!(outcome.violation, None);
        assert!(outcome.paths > tier::count(1_000, 1_000_000), "explored too little: {outcome:?}");
    }
}

/// What one context owes, no barrier of another one forgets.
#[test]
fn a_context_that_does_not_work_forgets_nothing() {
    let ops_max = if scale() > 1 { 5 } else { tier::count(3, 4) };
    let outcome = explore_all(&BESIDE, Before::Ended, Left::Nothing, ops_max);
    std::println!("sole, beside another context: {outcome:?}");
    assert_eq!(outcome.violation, None);
    assert!(outcome.paths > tier::count(1_000, 1_000_000), "explored too little: {outcome:?}");
}

/// Nor does a thread that is about to pay for a context that ends.
#[test]
#[ignore = "long tier"]
fn a_context_that_ends_forgets_nothing() {
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
fn a_thread_that_pays_for_a_context_that_has_ended_is_caught() {
    assert!(explore_all(&END, Before::Owed, Left::DebtorUnderGate, END.len()).violation.is_some());
}

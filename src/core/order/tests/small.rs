//! The small parts one by one, and the properties that every route must respect whatever the facts
//! are.

use alloc::vec::Vec;

use crate::order::captures::{Begun, Capture, Captures};
use crate::order::deferring_context::DeferringContext;
use crate::order::exclusive::{Exclusive, Observer};
use crate::order::ledger::{AfterBarrier, ContextCoverage, FreeInput, Ledger};
use crate::order::pending::{BarrierNumber, PendingBarriers, TrackedBarrier};
use crate::order::route::{
    FreeState, Mode, Route, StreamRoute, free_async_block_plainly, free_context_block,
    free_on_stream,
};
use crate::order::submission_counters::{Lane, SubmissionCounters};
use crate::order::synced_streams::SyncedStreams;
use crate::order::visible::{Elision, UntrackedSubmission, VisibleCause};

fn all_facts() -> Vec<FreeState> {
    let mut all = Vec::new();
    for mode in [Mode::Ordered, Mode::Strict, Mode::Relaxed] {
        for bits in 0..1 << 8 {
            let bit = |number: u32| bits >> number & 1 == 1;
            all.push(FreeState {
                mode,
                exclusive: bit(0),
                capturing: bit(1),
                barrier_calls: bit(2),
                in_driver_callback: bit(3),
                ordered_quiet: bit(4),
                waited_quiet: bit(5),
                visible_quiet: bit(6),
                elision: bit(7),
            });
        }
    }
    all
}

#[test]
fn routes_respect_every_fact() {
    for facts in all_facts() {
        let plainly = free_context_block(&facts);
        let async_plainly = free_async_block_plainly(&facts);
        let on_stream = free_on_stream(&facts, false);
        let elsewhere = free_on_stream(&facts, true);
        assert_ne!(
            elsewhere,
            StreamRoute::Publish,
            "of another context nothing is known: {facts:?}"
        );
        let barrier = plainly == Route::Barrier;
        if facts.in_driver_callback {
            assert_eq!(plainly, Route::ParkForBarrier, "{facts:?}");
            assert_eq!(async_plainly, Route::ParkForBarrier, "{facts:?}");
            assert_eq!(on_stream, StreamRoute::ParkForBarrier, "{facts:?}");
        }
        if facts.capturing || !facts.barrier_calls {
            assert!(!barrier, "{facts:?}");
            assert_ne!(plainly, Route::Wait, "{facts:?}");
            assert_ne!(plainly, Route::ParkOnEvent, "{facts:?}");
            assert_ne!(async_plainly, Route::ParkOnEvent, "{facts:?}");
        }
        if facts.elision && facts.waited_quiet && !facts.in_driver_callback {
            assert_eq!(plainly, Route::Publish, "`Ledger::tracked_is_over`: {facts:?}");
        }
        // A capture elsewhere does not keep the block from becoming reusable.
        let parked = on_stream == StreamRoute::ParkForBarrier;
        assert_eq!(parked, facts.in_driver_callback, "{facts:?}");
        if !facts.exclusive || facts.mode == Mode::Relaxed {
            assert!(!barrier, "{facts:?}");
        }
        if facts.mode == Mode::Strict || !facts.visible_quiet || !facts.elision {
            assert_ne!(plainly, Route::Barrier, "{facts:?}");
        }
        if !facts.elision {
            assert_ne!(plainly, Route::Publish, "{facts:?}");
            assert_ne!(async_plainly, Route::Publish, "{facts:?}");
            assert_ne!(on_stream, StreamRoute::Publish, "{facts:?}");
        }
        let waits = [Route::Barrier, Route::Wait, Route::WaitNatively];
        assert!(!waits.contains(&async_plainly), "natively it does not wait: {facts:?}");
    }
}

/// A costlier route is taken only where a cheaper one would not suffice.
#[test]
fn routes_wait_no_longer_than_they_have_to() {
    for facts in all_facts().into_iter().filter(|facts| !facts.in_driver_callback) {
        let plainly = free_context_block(&facts);
        let may_record = facts.barrier_calls && !facts.capturing;
        let may_barrier = may_record && facts.exclusive;
        if may_record {
            assert_ne!(plainly, Route::WaitNatively, "{facts:?}");
        }
        let ordered = facts.mode == Mode::Ordered && may_barrier;
        if ordered && facts.elision && facts.visible_quiet {
            let quiet = facts.ordered_quiet || facts.waited_quiet;
            let expected = if quiet { Route::Publish } else { Route::Barrier };
            assert_eq!(plainly, expected, "{facts:?}");
        }
        let over = facts.elision && (facts.waited_quiet || ordered && facts.ordered_quiet);
        let async_plainly = match may_record {
            _ if over => Route::Publish,
            true => Route::ParkOnEvent,
            false => Route::ParkForBarrier,
        };
        assert_eq!(free_async_block_plainly(&facts), async_plainly, "{facts:?}");
        let on_stream = if over { StreamRoute::Publish } else { StreamRoute::Tag };
        assert_eq!(free_on_stream(&facts, false), on_stream, "{facts:?}");
        assert_eq!(free_on_stream(&facts, true), StreamRoute::Tag, "{facts:?}");
    }
}

#[test]
fn captures_are_known_by_stream_id() {
    let capture = |stream_id, context_id| Capture { stream_id, stream_handle: 77, context_id };
    let mut captures = Captures::new();
    assert_eq!(captures.begin(capture(1, 1)), Begun::New);
    assert_eq!(captures.begin(capture(1, 1)), Begun::Already, "the first capture goes on");
    assert_eq!(captures.begin(capture(2, 1)), Begun::New, "the handle was used again");
    assert!(captures.end(1));
    assert!(!captures.end(1), "ended twice");
    assert!(!captures.is_empty());
    assert_eq!(captures.begin(capture(3, 2)), Begun::New);
    assert_eq!(captures.context_destroyed(1), 1);
    assert_eq!(captures.iter().map(|entry| entry.stream_id).collect::<Vec<_>>(), [3]);
    assert_eq!(captures.keep(|_| true), 0);
    assert_eq!(captures.keep(|_| false), 1, "the driver says it is over");
    assert!(captures.is_empty());
    assert_eq!(captures.begin(capture(4, 2)), Begun::New);
    assert!(captures.stream_destroyed(4));
    assert!(captures.is_empty());
}

#[test]
fn any_number_of_captures_is_known() {
    const COUNT: u64 = 1_000;
    let capture = |stream_id| Capture { stream_id, stream_handle: 0, context_id: 0 };
    let mut captures = Captures::new();
    for stream_id in 0..COUNT {
        assert_eq!(captures.begin(capture(stream_id)), Begun::New);
    }
    assert_eq!(captures.begin(capture(COUNT - 1)), Begun::Already);
    assert_eq!(captures.iter().count() as u64, COUNT);
    assert_eq!(captures.keep(|_| false) as u64, COUNT);
    assert!(captures.is_empty());
}

#[test]
fn pending_barriers_end_with_a_later_one() {
    let pending = PendingBarriers::new();
    assert_eq!(pending.pending(), None);
    let (first, second) = (pending.take(), pending.take());
    assert_eq!((first, second), (BarrierNumber(1), BarrierNumber(2)));
    assert_eq!(pending.pending(), None, "taken is not yet made");
    assert_eq!(pending.passed(), 0);
    pending.note(second);
    assert_eq!(pending.passed(), 2);
    assert_eq!(pending.pending(), Some(second));
    pending.note(first);
    assert_eq!(pending.pending(), Some(second), "recorded in the other order");
    pending.complete(second);
    assert_eq!(pending.pending(), None);
    assert!(!pending.is_pending(first), "D2");
    assert!(!pending.is_pending(second), "it is complete itself");
    assert_eq!(pending.passed(), 2);
    pending.complete(pending.take());
    assert_eq!(pending.passed(), 3, "a wait leaves a free behind as a barrier does");

    let mut thread = TrackedBarrier::new();
    thread.track(5, first);
    thread.track(5, second);
    assert_eq!(thread.tracked(), Some((5, second)));
    assert_eq!(thread.elsewhere_than(5), None);
    assert_eq!(thread.elsewhere_than(6), Some((5, second)));
    thread.clear();
    assert_eq!(thread.tracked(), None);
    assert_eq!(thread.elsewhere_than(6), None);
}

#[test]
fn exclusive_ends_once_and_all_wait_for_that() {
    let exclusive = Exclusive::new();
    assert!(exclusive.is_exclusive(1) && exclusive.is_exclusive(2), "nothing was submitted");
    assert!(!exclusive.submits(1));
    assert!(exclusive.is_exclusive(1));
    assert!(!exclusive.is_exclusive(2), "its work would be ordered by the other's barriers");
    assert!(!exclusive.submits(1));
    assert!(exclusive.submits(2), "a second context");
    assert!(!exclusive.is_exclusive(1));
    assert!(exclusive.submits(2), "the first wait is not over");
    assert!(exclusive.observe(Observer::Ipc), "nor for another observer");
    exclusive.waited();
    assert!(!exclusive.submits(2));
    assert!(!exclusive.observe(Observer::PeerAccess), "nothing is pending any more");
    assert!(!exclusive.is_exclusive(1));
    let seen = [Observer::SecondContext, Observer::Ipc, Observer::PeerAccess];
    assert_eq!(exclusive.observers(), seen.iter().fold(0, |bits, &agent| bits | 1 << agent as u32));
    assert!(seen.iter().all(|agent| exclusive.has_observed(*agent)));
    assert!(!exclusive.has_observed(Observer::GreenContext));
}

#[test]
fn a_context_that_ended_leaves_its_place_to_another_one() {
    let exclusive = Exclusive::new();
    assert!(!exclusive.submits(1));
    exclusive.ended(2);
    assert!(exclusive.is_exclusive(1) && !exclusive.is_exclusive(2), "another one has ended");
    exclusive.ended(1);
    assert!(exclusive.is_exclusive(1) && exclusive.is_exclusive(2));
    assert!(!exclusive.submits(2), "it is the only one now");
    assert!(exclusive.is_exclusive(2) && !exclusive.is_exclusive(1));
    assert_eq!(exclusive.observers(), 0);
}

#[test]
fn an_agent_during_a_barrier_makes_the_free_wait() {
    let (ledger, covers) = (Ledger::new(), ContextCoverage::new());
    let seen = ledger.before_barrier(&covers);
    assert!(ledger.note_observer(Observer::Ipc));
    assert_eq!(covers.pending(), None);
    ledger.exclusive.waited();
    assert_eq!(ledger.barrier_is_in(&covers, seen, 1), AfterBarrier::WaitFirst);
}

#[test]
fn the_first_visible_cause_makes_the_next_free_wait() {
    let (ledger, covers) = (Ledger::new(), ContextCoverage::new());
    let situation = FreeInput {
        mode: Mode::Ordered,
        context_id: 1,
        capturing: false,
        barrier_calls: true,
        in_driver_callback: false,
    };
    assert!(!ledger.submits(1, false));
    ledger.submitted(false);
    assert_eq!(free_context_block(&ledger.facts(&covers, situation)), Route::Barrier);
    assert!(!ledger.visible.has(VisibleCause::Managed));
    assert!(ledger.note_visible(VisibleCause::Managed));
    assert!(!ledger.note_visible(VisibleCause::DevicePointer), "the second one");
    assert!(ledger.visible.every_kernel());
    assert!(ledger.visible.has(VisibleCause::Managed));
    assert!(!ledger.visible.has(VisibleCause::DeviceMapped));
    assert_eq!(free_context_block(&ledger.facts(&covers, situation)), Route::Wait);
    let seen = ledger.before_barrier(&covers);
    covers.waited(seen);
    assert_eq!(free_context_block(&ledger.facts(&covers, situation)), Route::Publish);
}

#[test]
fn skipping_ends_once() {
    let elision = Elision::new();
    assert!(elision.is_allowed());
    assert!(elision.ends(UntrackedSubmission::UnknownExportTable));
    assert!(!elision.ends(UntrackedSubmission::UnknownExportTable));
    assert!(!elision.ends(UntrackedSubmission::UnknownFunction), "it had ended");
    assert!(!elision.is_allowed());
}

/// A free has deferred its wait. Another free must not defer its own, because calls may be unseen
/// meanwhile. Nothing is submitted before that other free has submitted its own wait.
#[test]
fn each_stream_defers_until_a_wait_is_submitted() {
    let ledger = Ledger::new();
    ledger.deferral.flushed();
    assert!(ledger.may_defer_per_stream());
    ledger.elision.ends(UntrackedSubmission::UnknownFunction);
    assert!(!ledger.may_defer_per_stream(), "what comes may be unseen");
    assert!(ledger.deferral.is_deferred_per_stream(), "the wait for the first one is not in");
    ledger.deferral.clear_deferred();
    assert!(!ledger.deferral.is_deferred_per_stream());
}

#[test]
fn nothing_since_a_reading_while_nothing_runs_or_has_begun() {
    let counters = SubmissionCounters::new();
    let first = counters.before_barrier();
    assert!(counters.nothing_since(first));
    for lane in [Lane::Own, Lane::Shared] {
        let before = counters.before_barrier();
        counters.begin(lane);
        let during = counters.before_barrier();
        for seen in [before, during] {
            assert!(!counters.nothing_since(seen), "{lane:?}: a submission is in progress");
        }
        counters.end(lane);
        for seen in [before, during] {
            assert!(!counters.nothing_since(seen), "{lane:?}: its work may be later");
        }
        assert!(counters.nothing_since(counters.before_barrier()));
    }
}

/// More streams than places: those that share a place do not pass for each other.
#[test]
fn only_the_stream_itself_has_waited() {
    let mut streams = SyncedStreams::new();
    let barrier = BarrierNumber(7);
    streams.waits(1, barrier);
    assert!(streams.is(1, barrier) && streams.is(1, BarrierNumber(6)));
    assert!(!streams.is(1, BarrierNumber(8)), "a later barrier");
    for other in 2..1_000 {
        assert!(!streams.is(other, barrier), "stream {other} has not waited");
    }
}

#[test]
fn only_one_context_defers_at_a_time() {
    let deferring = DeferringContext::new();
    assert!(deferring.try_set(1));
    assert!(deferring.try_set(1), "it may defer again");
    assert!(!deferring.try_set(2), "another one does");
    deferring.clear(2);
    assert!(deferring.is(1) && !deferring.is(2));
    deferring.clear(1);
    assert!(deferring.try_set(2));
}

//! The streams that have had work since the last barrier, as far as a barrier needs to know. A
//! barrier is only recorded, and its wait is *deferred*: while there is only one stream, its later
//! work is ordered after the barrier by the order of the stream; and where several threads submit
//! to several streams, each stream waits for itself before it gets more work. (On an H100 a wait
//! costs the device 0.8 to 1.0 us between two kernels, a record nothing; and while two threads
//! submit, the wait of a whole context takes the host 13 us, that of a stream 1.)
//!
//! The states, of which the runtime keeps one for the process: nothing since the wait of a barrier;
//! one stream; a wait is being submitted; several streams without a deferred wait; several streams,
//! each with a deferred wait for the newest barrier.
//! * O1: a submission asks (`can_proceed`) after counting its beginning and before the real call.
//!   If it is not admitted, it calls `admission` until that returns how it goes on.
//! * O2: the wait of a barrier is deferred, under the barrier lock, as long as there is one stream:
//!   its context becomes the deferring one, and then, unless it was that before, the state is read
//!   again. This thread or one that submits to another stream sees the other.
//! * O3: several streams are admitted only once the wait is submitted, of the context or of the
//!   stream.
//!   Where the driver refuses the wait, in a host function, the submission proceeds without it and
//!   leaves the state to the next one: all that the driver accepts there touches no memory.
//! * O4: the state becomes "nothing since the wait of a barrier" only if no call was in progress
//!   when the counters were read before the record, and nothing has begun since. Only the thread
//!   with its own lane may find that: it needs no order between its own counters and the state, and
//!   the counters of all others are atomic additions.
//! * O5: the state in which each stream has a deferred wait is set and cleared under the barrier
//!   lock, and while its context is the deferring one. A thread that does not see it does not know
//!   of the free, and need not be ordered after it.
//! * "The barrier lock" is that of the one context that is the deferring one, or becomes it (W1 and
//!   W2 in `deferring_context.rs`).
//!
//! `tests/deferral` explores the steps.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::order::submission_counters::{CounterReading, Lane, SubmissionCounters};
use crate::rules::{Rule, rule_holds};

/// The stream of a call that names none, names the default stream of its thread, or may begin
/// before the earlier work of its stream is complete.
pub const ANY_STREAM: u64 = MULTIPLE;

const IDLE: u64 = u64::MAX - 3;
const DEFERRED_PER_STREAM: u64 = u64::MAX - 2;
const FLUSHING: u64 = u64::MAX - 1;
const MULTIPLE: u64 = u64::MAX;

/// The state, by stream handle. One stream under two handles (0 and 1 are the legacy stream) counts
/// as two: the wait is only submitted too early.
#[derive(Debug)]
pub struct DeferralState(AtomicU64);

/// The next step of a submission that was not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Call the driver.
    Proceed,
    /// If a wait is deferred: take the barrier lock and submit it, for the context (`flushed`) or,
    /// if the submission names its stream, for that alone (`flushed_per_stream`). If none is: call
    /// `flush_not_needed`. Then ask again.
    FlushDeferred,
    /// Take the barrier lock. If a wait is still deferred, let the stream wait for the newest
    /// barrier and proceed. Otherwise ask again.
    WaitOnStream,
}

impl DeferralState {
    /// Returns the state without submissions.
    pub const fn new() -> DeferralState {
        DeferralState(AtomicU64::new(IDLE))
    }

    /// Returns whether a submission to this stream may proceed. A relaxed load suffices: a barrier
    /// this thread can depend on was published under the barrier lock; O4 covers the others.
    #[inline(always)]
    pub fn can_proceed(&self, stream: u64) -> bool {
        let state = self.0.load(Relaxed);
        state == stream || state == MULTIPLE
    }

    /// Returns the next step of a submission that was not admitted.
    pub fn admission(&self, stream: u64) -> Admission {
        loop {
            if let Some(found) = self.step(stream) {
                return found;
            }
        }
    }

    /// One step of `admission`.
    pub(crate) fn step(&self, stream: u64) -> Option<Admission> {
        let state = self.0.load(SeqCst);
        let next = match state {
            _ if state == stream || state == MULTIPLE => return Some(Admission::Proceed),
            DEFERRED_PER_STREAM if stream == ANY_STREAM => return Some(Admission::FlushDeferred),
            DEFERRED_PER_STREAM => return Some(Admission::WaitOnStream),
            FLUSHING => return Some(Admission::FlushDeferred),
            IDLE => stream,
            // Without the rule, the deferred wait is forgotten.
            _ if !rule_holds(Rule::OtherStreamFlushes) => MULTIPLE,
            _ => FLUSHING,
        };
        let _ = self.0.compare_exchange(state, next, SeqCst, SeqCst);
        None
    }

    /// Records that a submission that was to flush has found no deferred wait.
    pub fn flush_not_needed(&self) {
        let _ = self.0.compare_exchange(FLUSHING, MULTIPLE, SeqCst, SeqCst);
    }

    /// The deferred wait has been submitted. The barrier lock must be held.
    pub fn flushed(&self) {
        self.0.store(MULTIPLE, SeqCst);
    }

    /// Returns whether a wait may be deferred because only one stream has work. The caller must
    /// hold the barrier lock, and check again after publishing the deferred state.
    #[inline]
    pub fn is_single_stream(&self) -> bool {
        !matches!(self.0.load(SeqCst), IDLE | DEFERRED_PER_STREAM | FLUSHING | MULTIPLE)
    }

    /// Defers the wait for the newest barrier for each of several streams. Returns `false` if the
    /// wait may not be deferred. The caller must hold the barrier lock, and have published the
    /// deferred wait.
    pub fn defer_per_stream(&self) -> bool {
        let from = self.0.compare_exchange(MULTIPLE, DEFERRED_PER_STREAM, SeqCst, SeqCst);
        matches!(from, Ok(_) | Err(DEFERRED_PER_STREAM))
    }

    /// Records that the stream of a submission has waited for the barrier, while the other streams
    /// still have a deferred wait. The caller must hold the barrier lock.
    pub fn flushed_per_stream(&self) {
        self.0.store(DEFERRED_PER_STREAM, SeqCst);
    }

    /// Records that the wait of a barrier was submitted: no stream has a deferred wait. The caller
    /// must hold the barrier lock.
    pub fn clear_deferred(&self) {
        let _ = self.0.compare_exchange(DEFERRED_PER_STREAM, MULTIPLE, SeqCst, SeqCst);
    }

    /// Returns whether each of several streams has a deferred wait.
    pub fn is_deferred_per_stream(&self) -> bool {
        self.0.load(SeqCst) == DEFERRED_PER_STREAM
    }

    /// Returns whether the state is this single stream.
    pub fn is(&self, stream: u64) -> bool {
        self.0.load(SeqCst) == stream
    }

    /// Records that the wait of a barrier was submitted, before which the counters were `seen`. The
    /// caller must hold the barrier lock.
    #[inline]
    pub fn wait_submitted(&self, counters: &SubmissionCounters, seen: CounterReading, lane: Lane) {
        if self.forgets(seen, lane) {
            self.looks_again(counters.begun(), seen);
        }
    }

    /// The first step of `wait_submitted`. Returns whether the second one is needed.
    #[inline]
    pub(crate) fn forgets(&self, seen: CounterReading, lane: Lane) -> bool {
        let may = lane == Lane::Own || !rule_holds(Rule::OwnerForgetsStreams);
        let forgets = may && seen.covers().is_some();
        if forgets {
            self.0.store(IDLE, SeqCst);
        }
        forgets
    }

    /// The second step of `wait_submitted`, with the number of submissions that have begun since
    /// the first.
    #[inline]
    pub(crate) fn looks_again(&self, begun: u64, seen: CounterReading) {
        if seen.covers() != Some(begun) && rule_holds(Rule::NothingBegunForgetsStreams) {
            self.0.store(MULTIPLE, SeqCst);
        }
    }

    /// Returns a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(state: u64) -> DeferralState {
        DeferralState(AtomicU64::new(state))
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Default for DeferralState {
    fn default() -> DeferralState {
        DeferralState::new()
    }
}

//! Which streams have had work since the last barrier, as far as a barrier needs to know. It is
//! only recorded, and its wait is *put off*: while one stream is all there is, later work of that
//! comes behind the barrier by the order of the stream; and where several threads submit to several
//! streams, each stream waits for itself before it gets more work. (On an H100 a wait costs the
//! device 0.8 to 1.0 us between two kernels, a record nothing; and while two threads submit, the
//! wait of a whole context takes the host 13 us, that of a stream 1.)
//!
//! The states, of which the runtime keeps one for the process: nothing since the wait of a barrier;
//! one stream; a wait is being put in; several streams, to which nothing is owed; several streams,
//! each of which owes the wait for the newest barrier.
//! * O1: a submission asks (`can_proceed`) behind its begin mark and before the real call. What is
//!   not admitted calls `admission` until that says how it goes on.
//! * O2: a barrier is put off, with the gate held, as long as there is one stream: its context
//!   becomes the debtor, and then, unless it was that before, it is asked again. Of this thread and
//!   one that comes to another stream, one sees the other.
//! * O3: several streams are admitted only once the wait is in, of the context or of the stream.
//! * O4: nothing since a barrier's wait: only if nothing was under way when the marks were read
//!   before the record, and nothing has begun since. Only the thread with a lane of its own may
//!   find that: it needs no order between its own marks and the state, and the marks of all others
//!   are atomic additions.
//! * O5: that each stream owes a wait is said, and taken back, with the gate held, and while its
//!   context is the debtor. A thread that does not find it said does not know of the free, and need
//!   not come behind it.
//! * "The gate" is that of the one context that is the debtor, or becomes it (W1 and W2 in
//!   `deferring_context.rs`).
//!
//! `tests/deferral` explores the steps.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::order::submission_counters::{CounterReading, Lane, SubmissionCounters};
use crate::rules::{Rule, rule_holds};

/// The stream of a call that names none, names the default stream of its thread, or may begin
/// before the earlier work of its stream is over.
pub const ANY_STREAM: u64 = MULTIPLE;

const IDLE: u64 = u64::MAX - 3;
const DEFERRED_PER_STREAM: u64 = u64::MAX - 2;
const FLUSHING: u64 = u64::MAX - 1;
const MULTIPLE: u64 = u64::MAX;

/// By handle. One stream under two handles (0 and 1 are the legacy stream) is two: that only pays
/// too early.
#[derive(Debug)]
pub struct DeferralState(AtomicU64);

/// How a submission that was not admitted goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// To the driver.
    Proceed,
    /// If a wait is owed: takes the gate and puts it in, for the context (`flushed`) or, if it
    /// names its stream, for that alone (`flushed_per_stream`). If none is: calls
    /// `flush_not_needed`. Then it asks again.
    FlushDeferred,
    /// Takes the gate; if a wait is owed still, lets the stream wait for the newest barrier, and
    /// goes ahead. Else it asks again.
    WaitOnStream,
}

impl DeferralState {
    /// Nothing submitted yet.
    pub const fn new() -> DeferralState {
        DeferralState(AtomicU64::new(IDLE))
    }

    /// Whether a submission to this stream goes ahead. What its thread knows of it finds here,
    /// however old the value: it has been told behind a gate, and O4 is about what it does not know
    /// of.
    #[inline(always)]
    pub fn can_proceed(&self, stream: u64) -> bool {
        let state = self.0.load(Relaxed);
        state == stream || state == MULTIPLE
    }

    /// What a submission that was not admitted does.
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
            // Without the rule, what is owed is forgotten.
            _ if !rule_holds(Rule::OtherStreamPays) => MULTIPLE,
            _ => FLUSHING,
        };
        let _ = self.0.compare_exchange(state, next, SeqCst, SeqCst);
        None
    }

    /// A submission that is to pay has found nothing owed, since it is to pay.
    pub fn flush_not_needed(&self) {
        let _ = self.0.compare_exchange(FLUSHING, MULTIPLE, SeqCst, SeqCst);
    }

    /// The deferred wait has been submitted. The barrier lock must be held.
    pub fn flushed(&self) {
        self.0.store(MULTIPLE, SeqCst);
    }

    /// Whether a barrier may put its wait off, for one stream. Call with the gate held, and again
    /// once it is said to be owed.
    #[inline]
    pub fn is_single_stream(&self) -> bool {
        !matches!(self.0.load(SeqCst), IDLE | DEFERRED_PER_STREAM | FLUSHING | MULTIPLE)
    }

    /// Each of several streams owes the wait for the newest barrier from now on. Call with the gate
    /// held, once it is said to be owed. False: it is not to be put off.
    pub fn defer_per_stream(&self) -> bool {
        let from = self.0.compare_exchange(MULTIPLE, DEFERRED_PER_STREAM, SeqCst, SeqCst);
        matches!(from, Ok(_) | Err(DEFERRED_PER_STREAM))
    }

    /// The stream of a submission has waited for the barrier that was put off. The others owe that
    /// still. Call with the gate held.
    pub fn flushed_per_stream(&self) {
        self.0.store(DEFERRED_PER_STREAM, SeqCst);
    }

    /// The wait of a barrier is in: no stream owes one. Call with the gate held.
    pub fn clear_deferred(&self) {
        let _ = self.0.compare_exchange(DEFERRED_PER_STREAM, MULTIPLE, SeqCst, SeqCst);
    }

    /// Whether streams owe a wait one by one.
    pub fn is_deferred_per_stream(&self) -> bool {
        self.0.load(SeqCst) == DEFERRED_PER_STREAM
    }

    /// Whether it is this one.
    pub fn is(&self, stream: u64) -> bool {
        self.0.load(SeqCst) == stream
    }

    /// The wait of a barrier is in, before which the marks were `seen`. Call with the gate held.
    #[inline]
    pub fn wait_submitted(&self, counters: &SubmissionCounters, seen: CounterReading, lane: Lane) {
        if self.forgets(seen, lane) {
            self.looks_again(counters.begun(), seen);
        }
    }

    /// The first step of `wait_submitted`; whether there is a second one.
    #[inline]
    pub(crate) fn forgets(&self, seen: CounterReading, lane: Lane) -> bool {
        let may = lane == Lane::Own || !rule_holds(Rule::OwnerForgetsStreams);
        let forgets = may && seen.covers().is_some();
        if forgets {
            self.0.store(IDLE, SeqCst);
        }
        forgets
    }

    /// The second one, with the number of submissions that have begun since the first.
    #[inline]
    pub(crate) fn looks_again(&self, begun: u64, seen: CounterReading) {
        if seen.covers() != Some(begun) && rule_holds(Rule::NothingBegunForgetsStreams) {
            self.0.store(MULTIPLE, SeqCst);
        }
    }

    /// In a given state, for tests that explore states.
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

//! Pending barriers: what later calls wait for after a free that made a barrier and did not wait.
//!
//! Natively the work before a free is over when the free returns, and some calls need that: to
//! destroy what the work used, to ask an event or a stream whether it is done. They wait for the
//! *free's* barrier, never for "now": work submitted after the free may run for ever.
//!
//! Barriers have numbers; the runtime maps a number to its event.
//! * D1: a number is taken (`take`) before its barrier is recorded, and noted once it was made.
//! * D2: hence the event of number n completes only after all work submitted before any number up
//!   to n was taken, whatever the order of the records: n complete means all up to n are.
//! * D3: noted before the `Coverage` passes: a free that skips its barrier finds here the one it
//!   relies on.
//! * D4: the tags that it drops were made before its number was taken: a complete number says
//!   nothing of what was submitted between the number and the record, and nothing waits for the
//!   event of one any more.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::rules::{Rule, rule_holds};

/// A barrier of one context. Counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct BarrierNumber(pub u64);

/// Per context: the last barrier, and the last known to be complete.
#[derive(Debug, Default)]
pub struct PendingBarriers {
    taken: AtomicU64,
    noted: AtomicU64,
    complete: AtomicU64,
}

impl PendingBarriers {
    /// No barrier yet.
    pub const fn new() -> PendingBarriers {
        PendingBarriers {
            taken: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            complete: AtomicU64::new(0),
        }
    }

    /// In a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(taken: u64, noted: u64, complete: u64) -> PendingBarriers {
        PendingBarriers {
            taken: AtomicU64::new(taken),
            noted: AtomicU64::new(noted),
            complete: AtomicU64::new(complete),
        }
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> (u64, u64, u64) {
        (self.taken.load(SeqCst), self.noted.load(SeqCst), self.complete.load(SeqCst))
    }

    /// The number of the barrier about to be recorded.
    pub fn take(&self) -> BarrierNumber {
        BarrierNumber(self.taken.fetch_add(1, SeqCst) + 1)
    }

    /// How many numbers have been taken. Read inside a free: a barrier with a greater number is
    /// recorded later than that, and is behind everything that the free must be behind.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// The newest number that a free has left behind: its barrier was made, or its wait is over.
    /// Numbers that are only taken count for nothing here: their wait may go on, and events that
    /// order nothing take some too.
    pub fn passed(&self) -> u64 {
        self.noted.load(SeqCst).max(self.complete.load(SeqCst))
    }

    /// A barrier that was made, and whose number was taken after `taken` was read: the free need
    /// not make its own. Barriers of many threads at once are slow in the driver; this way they
    /// share. See `tests/sharing.rs`.
    #[inline]
    pub fn in_since(&self, taken: u64) -> Option<BarrierNumber> {
        let noted = self.noted.load(SeqCst);
        let later = noted > taken || noted != 0 && !rule_holds(Rule::ShareNeedsLaterBarrier);
        later.then_some(BarrierNumber(noted))
    }

    /// The barrier was made, and the runtime knows its event by this number. A barrier that failed
    /// is never noted.
    pub fn note(&self, number: BarrierNumber) {
        debug_assert!(number.0 >= 1, "a number that was not taken");
        debug_assert!(number.0 <= self.taken.load(SeqCst), "D1: noted before it was taken");
        self.noted.fetch_max(number.0, SeqCst);
    }

    /// The event of this barrier is complete. Or: a wait for everything has returned (the context's
    /// synchronization, a native free) that began when this number was the pending one.
    pub fn complete(&self, number: BarrierNumber) {
        self.complete.fetch_max(number.0, SeqCst);
    }

    /// The last barrier, unless known to be complete: a teardown, and a call that reveals an
    /// observer, wait for it.
    #[inline]
    pub fn pending(&self) -> Option<BarrierNumber> {
        let noted = self.noted.load(SeqCst);
        (noted > self.complete.load(SeqCst)).then_some(BarrierNumber(noted))
    }

    /// Whether this barrier is not yet known to be complete.
    #[inline]
    pub fn is_pending(&self, number: BarrierNumber) -> bool {
        number.0 > self.complete.load(SeqCst)
    }
}

/// Per thread: the barrier of this thread's last free. A query that would return "not ready" waits
/// for it and asks again.
///
/// Other threads do not wait for it without a limit: their query may be the poll of a loop that
/// feeds the very kernel which this thread's free would have waited for. One for each context: the
/// runtime keeps those of other contexts than the last free's aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrackedBarrier {
    barrier: Option<(u64, BarrierNumber)>,
}

impl TrackedBarrier {
    /// No pending barrier.
    pub const fn new() -> TrackedBarrier {
        TrackedBarrier { barrier: None }
    }

    /// This thread's free made the barrier, or skipped its own and relies on this one.
    pub fn track(&mut self, context_id: u64, number: BarrierNumber) {
        self.barrier = Some((context_id, number));
    }

    /// The context and the barrier, for the runtime to find their `PendingBarriers`.
    #[inline]
    pub fn tracked(&self) -> Option<(u64, BarrierNumber)> {
        self.barrier
    }

    /// The same, if it is of another context than this one, in which the thread frees now.
    #[inline]
    pub fn elsewhere_than(&self, context_id: u64) -> Option<(u64, BarrierNumber)> {
        self.barrier.filter(|(tracked_id, _)| *tracked_id != context_id)
    }

    /// It was waited for, or its context is gone.
    pub fn clear(&mut self) {
        self.barrier = None;
    }
}

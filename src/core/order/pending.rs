//! Pending barriers: later calls wait for them after a free that made a barrier and did not wait.
//!
//! In the driver, the work before a free is complete when the free returns, and some calls need
//! that: to destroy what the work used, or to ask an event or a stream whether it is done. They
//! wait for the *free's* barrier, never for "now": work submitted after the free may run for ever.
//!
//! Barriers have numbers; the runtime maps a number to its event.
//! * D1: a number is taken (`take`) before its barrier is recorded, and noted once it was made.
//! * D2: hence the event of number n completes only after all work submitted before any number up
//!   to n was taken, whatever the order of the records: n complete means all up to n are.
//! * D3: a barrier is noted before its `Coverage` is extended: a free that skips its barrier finds
//!   here the one it relies on.
//! * D4: the tags that a barrier drops were made before its number was taken. A complete number
//!   proves nothing about work submitted between the number and the record, and nothing waits for
//!   the event of a complete number any more.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::rules::{Rule, rule_holds};

/// A barrier of one context. Counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct BarrierNumber(pub u64);

/// The last barrier of a context, and the last one known to be complete.
#[derive(Debug, Default)]
pub struct PendingBarriers {
    taken: AtomicU64,
    noted: AtomicU64,
    complete: AtomicU64,
}

impl PendingBarriers {
    /// Returns the state without a barrier.
    pub const fn new() -> PendingBarriers {
        PendingBarriers {
            taken: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            complete: AtomicU64::new(0),
        }
    }

    /// Returns a given state, for tests that explore states.
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

    /// Takes the number of the barrier about to be recorded.
    pub fn take(&self) -> BarrierNumber {
        BarrierNumber(self.taken.fetch_add(1, SeqCst) + 1)
    }

    /// Returns how many numbers have been taken. Call it inside a free: a barrier with a greater
    /// number is recorded later, and is ordered after everything that the free must be ordered
    /// after.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// Returns the newest number whose barrier was made or whose wait has returned. Numbers that
    /// are only taken do not count: their wait may go on, and events that order nothing take some
    /// too.
    pub fn passed(&self) -> u64 {
        self.noted.load(SeqCst).max(self.complete.load(SeqCst))
    }

    /// Returns a barrier that was made, and whose number was taken after `taken` was read. The free
    /// need not make its own: barriers of many threads at once are slow in the driver, so they
    /// share one. See `tests/sharing.rs`.
    #[inline]
    pub fn in_since(&self, taken: u64) -> Option<BarrierNumber> {
        let noted = self.noted.load(SeqCst);
        let later = noted > taken || noted != 0 && !rule_holds(Rule::ShareNeedsLaterBarrier);
        later.then_some(BarrierNumber(noted))
    }

    /// Records that the barrier was made and that the runtime knows its event by this number. A
    /// barrier that failed is never noted.
    pub fn note(&self, number: BarrierNumber) {
        debug_assert!(number.0 >= 1, "a number that was not taken");
        debug_assert!(number.0 <= self.taken.load(SeqCst), "D1: noted before it was taken");
        self.noted.fetch_max(number.0, SeqCst);
    }

    /// Records that the event of this barrier is complete. Call it also when a wait for everything
    /// has returned (the context's synchronization, the driver's own free) that began while this
    /// number was the pending one.
    pub fn complete(&self, number: BarrierNumber) {
        self.complete.fetch_max(number.0, SeqCst);
    }

    /// Returns the last barrier, unless it is known to be complete. A teardown, and a call that
    /// reveals an observer, wait for it.
    #[inline]
    pub fn pending(&self) -> Option<BarrierNumber> {
        let noted = self.noted.load(SeqCst);
        (noted > self.complete.load(SeqCst)).then_some(BarrierNumber(noted))
    }

    /// Returns whether this barrier is not yet known to be complete.
    #[inline]
    pub fn is_pending(&self, number: BarrierNumber) -> bool {
        number.0 > self.complete.load(SeqCst)
    }
}

/// The barrier of a thread's last free, one per thread. A query that would return "not ready" waits
/// for it and asks again.
///
/// Other threads do not wait for it without a limit: their query may be the poll of a loop that
/// feeds the very kernel which this thread's free would have waited for. There is one for each
/// context: the runtime keeps those of contexts other than the last free's aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrackedBarrier {
    barrier: Option<(u64, BarrierNumber)>,
}

impl TrackedBarrier {
    /// Returns the state without a pending barrier.
    pub const fn new() -> TrackedBarrier {
        TrackedBarrier { barrier: None }
    }

    /// Records that this thread's free made the barrier, or skipped its own and relies on this one.
    pub fn track(&mut self, context_id: u64, number: BarrierNumber) {
        self.barrier = Some((context_id, number));
    }

    /// Returns the context and the barrier, for the runtime to find their `PendingBarriers`.
    #[inline]
    pub fn tracked(&self) -> Option<(u64, BarrierNumber)> {
        self.barrier
    }

    /// Returns the context and the barrier if the context is not this one, in which the thread
    /// frees now.
    #[inline]
    pub fn elsewhere_than(&self, context_id: u64) -> Option<(u64, BarrierNumber)> {
        self.barrier.filter(|(tracked_id, _)| *tracked_id != context_id)
    }

    /// Forgets the barrier: it was awaited, or its context is gone.
    pub fn clear(&mut self) {
        self.barrier = None;
    }
}

//! Submission counters: was anything submitted since the last barrier?
//!
//! A flag "something was submitted" cannot answer this (Note [Why not a flag]). Two counters can:
//! every call that submits or orders work adds one to `begun` before the real call and one to
//! `ended` after it. A barrier reads `ended`, then `begun`, before it is recorded. If both were the
//! same number s, everything begun up to s is ordered before the barrier once its wait is
//! submitted: it is *covered*.
//!
//! Invariants:
//! * M1: `ended <= begun` at every moment, and both only grow.
//! * M2: a `Coverage` holds s only if, at one moment before its barrier was recorded, exactly s
//!   calls had begun and all of them had ended.
//! * M3: hence `begun == s` later on means: nothing has begun since that moment, and everything
//!   begun before it is ordered before the barrier.
//!
//! Each method that touches several atomics is a sequence of the single steps `begun`, `ended`,
//! `covered`; the tests interleave exactly these steps.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::rules::{Rule, rule_holds};

/// The two counters over all submissions of the process, or over those that the host could see.
/// Each is kept in two lanes (Note [Lanes]); `begun` and `ended` mean the sums.
#[derive(Debug, Default)]
pub struct SubmissionCounters {
    own: Counters,
    shared: Counters,
}

/// Both counters share a cache line on purpose: a launch touches both, so the line moves between
/// cores only once. Nothing else may share it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counters {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The counters that a thread adds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// The lane of one thread of the process at a time.
    Own,
    /// The lane of every other thread.
    Shared,
}

/// The counters as read for a barrier or a wait, before that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterReading {
    ended: u64,
    begun: u64,
}

/// The number of submissions that are ordered before a barrier, or that the host has waited for.
/// One per context and purpose.
#[derive(Debug, Default)]
pub struct Coverage(AtomicU64);

impl SubmissionCounters {
    pub(crate) const OF_OWN_BEGUN: usize =
        offset_of!(SubmissionCounters, own) + offset_of!(Counters, begun);
    pub(crate) const OF_OWN_ENDED: usize =
        offset_of!(SubmissionCounters, own) + offset_of!(Counters, ended);

    /// Returns counters without submissions.
    pub const fn new() -> SubmissionCounters {
        SubmissionCounters { own: Counters::at(0, 0), shared: Counters::at(0, 0) }
    }

    /// Counts the beginning of a submission. Call it before the real call, with nothing in between
    /// that could submit.
    ///
    /// The addition must be visible before the device can start the work: a kernel may raise a flag
    /// in pinned memory before its own launch returns, and a thread that saw the flag may free. No
    /// acquire or release pairs up there, so a barrier stands between the addition and the driver's
    /// doorbell, and another one in front of the reads (Note [Flags of the device]).
    #[inline(always)]
    pub fn begin(&self, lane: Lane) {
        match lane {
            Lane::Own => add_alone(&self.own.begun),
            Lane::Shared => {
                self.shared.begun.fetch_add(1, SeqCst);
            }
        }
        barrier();
    }

    /// Counts the end of a submission. Call it after the real call returned, whatever it returned.
    ///
    /// A call that never gets here (a thread killed inside the driver) leaves `ended` too small
    /// permanently: no barrier is ever skipped again, which is the safe side.
    #[inline(always)]
    pub fn end(&self, lane: Lane) {
        match lane {
            Lane::Own => add_alone(&self.own.ended),
            Lane::Shared => {
                self.shared.ended.fetch_add(1, SeqCst);
            }
        }
    }

    /// Reads the counters. Call it before the barrier is recorded, or before the call that waits.
    ///
    /// The order of the reads is part of M2: `ended` first. If `begun`, read later, is the same
    /// number, no call was in progress at the moment of the second read.
    #[inline]
    pub fn before_barrier(&self) -> CounterReading {
        barrier();
        let ended = self.ended();
        let begun = self.begun();
        CounterReading::new(ended, begun)
    }

    /// Returns whether everything begun has ended and is covered, so that a barrier would add
    /// nothing.
    #[inline]
    pub fn quiet_since(&self, cover: &Coverage) -> bool {
        barrier();
        let begun = self.begun();
        let ended = self.ended();
        let covered = cover.covered();
        quiet(begun, ended, covered)
    }

    /// Returns what `quiet_since` does, without reading `ended`: by M2, a coverage of all that has
    /// begun means that all of it had ended (`interleave::single_checks_are_redundant`).
    #[inline]
    pub fn nothing_begun_since(&self, cover: &Coverage) -> bool {
        barrier();
        let begun = self.begun();
        begun == cover.covered()
    }

    /// Returns whether all submissions had ended when `seen` was read, and nothing has begun since.
    /// This is M3 for work recorded after the reads, without a coverage.
    #[inline]
    pub fn nothing_since(&self, seen: CounterReading) -> bool {
        barrier();
        let begun = self.begun();
        let ended = self.ended();
        seen.covers().is_some_and(|covered| quiet(begun, ended, covered))
    }

    /// Returns how many calls have begun. One step for each lane.
    #[inline]
    pub fn begun(&self) -> u64 {
        self.own.begun.load(SeqCst).wrapping_add(self.shared.begun.load(SeqCst))
    }

    /// Returns how many calls of threads in the shared lane have begun.
    pub fn begun_by_others(&self) -> u64 {
        self.shared.begun.load(SeqCst)
    }

    /// Returns how many calls have ended. One step for each lane.
    #[inline]
    pub fn ended(&self) -> u64 {
        self.own.ended.load(SeqCst).wrapping_add(self.shared.ended.load(SeqCst))
    }

    /// Returns counters in a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(begun: u64, ended: u64) -> SubmissionCounters {
        SubmissionCounters { own: Counters::at(0, 0), shared: Counters::at(begun, ended) }
    }
}

impl Counters {
    const fn at(begun: u64, ended: u64) -> Counters {
        Counters { begun: AtomicU64::new(begun), ended: AtomicU64::new(ended) }
    }
}

/// Adds one as the only thread that writes the counter. Not for signal handlers: one that
/// interrupts the two steps and submits itself would lose a count, and CUDA forbids calls from one.
#[inline(always)]
fn add_alone(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Release);
}

/// Orders a counter against the device, see Note [Flags of the device].
#[inline(always)]
fn barrier() {
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(SeqCst);
}

impl CounterReading {
    /// Returns a reading of these values, in the order they were read.
    #[inline]
    pub fn new(ended: u64, begun: u64) -> CounterReading {
        CounterReading { ended, begun }
    }

    #[cfg(test)]
    pub(crate) fn parts(self) -> (u64, u64) {
        (self.ended, self.begun)
    }

    /// Returns the number of submissions covered by a barrier recorded after these reads. Returns
    /// `None` if a call was in progress, because its work may be ordered before or after the
    /// barrier.
    #[inline]
    pub fn covers(self) -> Option<u64> {
        if !rule_holds(Rule::ElisionNeedsEnded) || !rule_holds(Rule::CoverNeedsSeen) {
            return Some(self.begun);
        }
        (self.begun == self.ended).then_some(self.ended)
    }
}

impl Coverage {
    /// Returns a coverage of nothing.
    pub const fn new() -> Coverage {
        Coverage(AtomicU64::new(0))
    }

    /// Extends the coverage. Call it once the barrier's wait is submitted (or the host's wait has
    /// returned), never earlier: another thread skips its own barrier as soon as it reads this.
    ///
    /// The greatest value stays: two barriers may arrive here in another order than they were
    /// recorded.
    #[inline]
    pub fn passed(&self, seen: CounterReading) {
        if let Some(covered) = seen.covers() {
            self.0.fetch_max(covered, SeqCst);
        }
    }

    /// Returns the number of submissions that are covered. One step.
    #[inline]
    pub fn covered(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Returns a coverage in a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(covered: u64) -> Coverage {
        Coverage(AtomicU64::new(covered))
    }
}

/// The decision of `quiet_since`, separate so that the tests can take the reads apart.
#[inline]
pub(crate) fn quiet(begun: u64, ended: u64, covered: u64) -> bool {
    let ended_too = begun == ended || !rule_holds(Rule::ElisionNeedsEnded);
    ended_too && begun == covered
}

// Note [Lanes]
//
// Two locked additions are most of what a hook adds to a launch. Most programs launch from one
// thread, so one thread owns a lane in which it counts by plain stores; all others share the other
// lane. The sums still mean what M1 to M3 say, although a sum is read in two steps:
//  * a barrier reads both `ended` before both `begun`. If the sums are equal, then each lane was
//    equal (each `ended <= begun`, and both only grow), so between the two pairs of reads no call
//    was in progress in either lane: at that moment exactly s calls had begun and all had ended.
//  * a skip reads both `begun` and compares with such an s. Everything that the free needs had
//    begun before its first read. If the barrier's moment was later, all of that is in s. If it was
//    earlier, each lane has at least its part of s, so equal sums mean equal parts, and all of it
//    is in s.
// `tests/lanes.rs` explores the steps.
//
// Note [Flags of the device]
//
// One thread counts a launch and rings the driver's doorbell; the kernel raises a flag; another
// thread sees the flag by a plain read and frees. The free must find the launch. x86 makes stores
// visible in their order, the doorbell's among them, and reads in theirs, so nothing is needed
// there. Other processors may reorder both, also around a single atomic addition: hence a barrier
// after the addition, and one before the counters are read. `tests/weak.rs` fails without the
// first; the second is for reorderings that Miri, which makes reads in their order, cannot show.
//
// Note [Why not a flag]
//
// "Set before the launch, cleared by a barrier" loses: T2 sets, T1 frees and clears, T2 launches
// (after T1's barrier), T2 frees and finds nothing new. "Set after the launch" loses: a kernel
// raises a pinned flag before its launch returned, T3 frees and finds nothing new. Set on both
// sides, but cleared before the record: T2 frees meanwhile, finds nothing new and hands out a block
// that no barrier protects yet. Cleared after the record: a launch between the two is forgotten.
// Counters have none of the four faults, because a barrier says *how much* it covers.

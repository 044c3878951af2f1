//! Marks: was anything submitted since the last barrier?
//!
//! A flag "something was submitted" cannot answer this (Note [Why not a flag]). Two counters can:
//! every call that submits or orders work adds one to `begun` before the real call and one to
//! `ended` after it. A barrier reads `ended`, then `begun`, before it is recorded; once it is in
//! and if both were the same number s, then everything begun up to s is behind it: it is *covered*.
//!
//! Invariants:
//! * M1: `ended <= begun` at every moment, and both only grow.
//! * M2: a `Coverage` holds s only if, at one moment before its barrier was recorded, exactly s
//!   calls had begun and all of them had ended.
//! * M3: hence `begun == s` later on means: nothing has begun since that moment, and all that
//!   had begun before is behind the barrier.
//!
//! Each method that touches several atomics is a sequence of the single steps `begun`, `ended`,
//! `covered`; the tests interleave exactly these steps.

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

/// Both counters share a cache line on purpose: a launch touches both, so one transfer of the
/// line between cores pays for both; nothing else may share it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counters {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Which counters a thread adds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// One thread of the process at a time.
    Own,
    /// Every other thread.
    Shared,
}

/// The counters as a barrier or a wait found them before it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterReading {
    ended: u64,
    begun: u64,
}

/// "Everything begun up to here is behind a barrier" (or was waited for). One per context and
/// purpose.
#[derive(Debug, Default)]
pub struct Coverage(AtomicU64);

impl SubmissionCounters {
    /// Nothing submitted yet.
    pub const fn new() -> SubmissionCounters {
        SubmissionCounters { own: Counters::at(0, 0), shared: Counters::at(0, 0) }
    }

    /// Call before the real call, with nothing between that could submit.
    ///
    /// The addition must be visible before the device can start the work: a kernel may raise a
    /// flag in pinned memory before its own launch returns, and a thread that saw the flag may
    /// free. No acquire or release pairs up there, so a barrier stands between the addition and the
    /// driver's doorbell, and another one in front of the reads (Note [Flags of the device]).
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

    /// Call after the real call returned, whatever it returned.
    ///
    /// A call that never gets here (a thread killed inside the driver) leaves `ended` behind for
    /// good: no barrier is ever skipped again, which is the safe side.
    #[inline(always)]
    pub fn end(&self, lane: Lane) {
        match lane {
            Lane::Own => add_alone(&self.own.ended),
            Lane::Shared => {
                self.shared.ended.fetch_add(1, SeqCst);
            }
        }
    }

    /// Call before the barrier is recorded, or before the call that waits.
    ///
    /// The order of the reads is part of M2: `ended` first. If `begun`, read later, is the same
    /// number, then at the moment of the second read nothing was between begin and end.
    #[inline]
    pub fn before_barrier(&self) -> CounterReading {
        barrier();
        let ended = self.ended();
        let begun = self.begun();
        CounterReading::new(ended, begun)
    }

    /// Whether everything begun has ended and is covered, so that a barrier would add nothing.
    #[inline]
    pub fn quiet_since(&self, cover: &Coverage) -> bool {
        barrier();
        let begun = self.begun();
        let ended = self.ended();
        let covered = cover.covered();
        quiet(begun, ended, covered)
    }

    /// Whether all had ended when this was read, and nothing has begun since: M3, of what was
    /// recorded behind the reads instead of a cover.
    #[inline]
    pub fn nothing_since(&self, seen: CounterReading) -> bool {
        barrier();
        let begun = self.begun();
        let ended = self.ended();
        seen.covers().is_some_and(|covered| quiet(begun, ended, covered))
    }

    /// How many calls have begun. One step for each lane.
    #[inline]
    pub fn begun(&self) -> u64 {
        self.own.begun.load(SeqCst).wrapping_add(self.shared.begun.load(SeqCst))
    }

    /// How many of them threads without a lane of their own have begun.
    pub fn begun_by_others(&self) -> u64 {
        self.shared.begun.load(SeqCst)
    }

    /// How many calls have ended. One step for each lane.
    #[inline]
    pub fn ended(&self) -> u64 {
        self.own.ended.load(SeqCst).wrapping_add(self.shared.ended.load(SeqCst))
    }

    /// Marks in a given state, for tests that explore states.
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

/// An addition by the only thread that writes the counter. Not for signal handlers: one that comes
/// between the two steps and submits itself would lose a count, and CUDA forbids calls from one.
#[inline(always)]
fn add_alone(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Release);
}

/// Note [Flags of the device].
#[inline(always)]
fn barrier() {
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(SeqCst);
}

impl CounterReading {
    /// What was read, in this order.
    #[inline]
    pub fn new(ended: u64, begun: u64) -> CounterReading {
        CounterReading { ended, begun }
    }

    #[cfg(test)]
    pub(crate) fn parts(self) -> (u64, u64) {
        (self.ended, self.begun)
    }

    /// Up to where a barrier recorded after these reads covers; none if a call was under way,
    /// because the barrier may stand before or behind what that call submits.
    #[inline]
    pub fn covers(self) -> Option<u64> {
        if !rule_holds(Rule::ElisionNeedsEnded) || !rule_holds(Rule::CoverNeedsSeen) {
            return Some(self.begun);
        }
        (self.begun == self.ended).then_some(self.ended)
    }
}

impl Coverage {
    /// Nothing covered yet.
    pub const fn new() -> Coverage {
        Coverage(AtomicU64::new(0))
    }

    /// Call once the barrier's wait is in (or the host's wait has returned), never earlier:
    /// another thread skips its own barrier as soon as it reads this.
    ///
    /// The greatest stays: two barriers may pass in the other order than they were recorded.
    #[inline]
    pub fn passed(&self, seen: CounterReading) {
        if let Some(covered) = seen.covers() {
            self.0.fetch_max(covered, SeqCst);
        }
    }

    /// One step: up to where everything is covered.
    #[inline]
    pub fn covered(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// A cover in a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(covered: u64) -> Coverage {
        Coverage(AtomicU64::new(covered))
    }
}

/// The decision of `quiet_since`, on its own so that the tests can take the reads apart.
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
//    equal (each `ended <= begun`, and both only grow), so between the two pairs of reads nothing
//    was under way in either lane: at that moment exactly s calls had begun and all had ended.
//  * a skip reads both `begun` and compares with such an s. What the free needs had begun before
//    its first read. If the barrier's moment was later, all of that is in s. If it was earlier,
//    each lane has at least its part of s, so equal sums mean equal parts, and all of it is in s.
// `tests/lanes.rs` explores the steps.
//
// Note [Flags of the device]
//
// One thread counts a launch and rings the driver's doorbell; the kernel raises a flag; another
// thread sees the flag by a plain read and frees. The free must find the launch. x86 makes stores
// visible in their order, the doorbell's among them, and reads in theirs, so there is nothing to
// do. Other processors may do both otherwise, also around a single atomic addition: hence a barrier
// behind the addition, and one before the counters are read. `tests/weak.rs` fails without the
// first; the second is for what Miri, which makes reads in their order, cannot show.
//
// Note [Why not a flag]
//
// "Set before the launch, cleared by a barrier" loses: T2 sets, T1 frees and clears, T2 launches
// (behind T1's barrier), T2 frees and finds nothing new. "Set after the launch" loses: a kernel
// raises a pinned flag before its launch returned, T3 frees and finds nothing new. Set on both
// sides, but cleared before the record: T2 frees meanwhile, finds nothing new and hands out a block
// that no barrier protects yet. Cleared after the record: a launch between the two is forgotten.
// Counters have none of the four, because a barrier says *how much* it covers.

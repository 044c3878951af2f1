//! The ledger combines the parts of this module in the only sound order.
//!
//! One `Ledger` per process, one `ContextCoverage` per context. A submission:
//!
//! ```text
//! ledger.begin(visible, lane)
//! if several contexts submit, and ledger.exclusive.submits(context) {
//!     wait for ContextCoverage::pending of all; exclusive.waited()
//! }
//! real call
//! ledger.end(visible, lane)
//! ```
//!
//! A free of a context block (the lock against captures is held from before `facts` reads
//! `capturing` until the wait is submitted):
//!
//! ```text
//! facts = ledger.facts(covers, situation)
//! Publish                  => publish; if covers.pending() is n, which it relies on:
//!                             thread.track(n)
//! Barrier                  =>
//!     seen = ledger.before_barrier(covers)      takes the number, reads the counters
//!     record, wait; the runtime files the event under seen.number(); ledger.wait_submitted(seen)
//!         or, if ledger.may_defer() before and after the context is set as the deferring
//!         one, record only
//!     ledger.barrier_is_in(covers, seen, context) is WaitFirst
//!                          => wait for the event; covers.waited(seen); publish
//!     otherwise            => thread.track(seen.number()); publish
//! Wait                     => seen = ledger.before_barrier(covers); record; wait for the event;
//!                             covers.waited(seen)
//! WaitNatively             => seen = ledger.before_barrier(covers); wait; covers.waited(seen)
//! ```
//!
//! The program's own wait for everything in a context covers as well: `before_barrier`, the real
//! call, and if it succeeded `covers.waited(seen)`. A wait for one stream or event covers nothing.

use core::mem::offset_of;

use crate::order::deferral::{ANY_STREAM, DeferralState};
use crate::order::deferring_context::DeferringContext;
use crate::order::exclusive::{Exclusive, Observer};
use crate::order::pending::{BarrierNumber, PendingBarriers};
use crate::order::route::{FreeState, Mode};
use crate::order::submission_counters::{CounterReading, Coverage, Lane, SubmissionCounters};
use crate::order::visible::{Elision, Visible, VisibleCause};
use crate::rules::{Rule, rule_holds};

/// The state shared by the whole process.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Everything submitted.
    pub submitted: SubmissionCounters,
    /// The submissions whose effect the host could see without synchronizing.
    pub host_visible: SubmissionCounters,
    /// Whether a barrier may stand in for a wait.
    pub exclusive: Exclusive,
    /// Whether every kernel counts as visible to the host.
    pub visible: Visible,
    /// Whether the counters see every submission.
    pub elision: Elision,
    /// Which streams have work, as far as a deferred wait needs to know.
    pub deferral: DeferralState,
    /// The context that has a deferred wait.
    pub deferring_context: DeferringContext,
}

/// The state of each context. What a free reads that has nothing to do comes first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ContextCoverage {
    /// Everything the host has waited for.
    pub waited: Coverage,
    /// The barriers by number, and which are complete.
    pub pending_barriers: PendingBarriers,
    /// Everything ordered before a barrier whose wait was submitted.
    pub ordered: Coverage,
    /// Everything host-visible that the host has waited for.
    pub host_visible: Coverage,
}

/// The inputs about a free that only the runtime knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeInput {
    /// The mode, see `FreeState::mode`.
    pub mode: Mode,
    /// The block's context, by `cuCtxGetId`.
    pub context_id: u64,
    /// Whether a stream captures, see `FreeState::capturing`.
    pub capturing: bool,
    /// Whether the barrier calls work, see `FreeState::barrier_calls`.
    pub barrier_calls: bool,
    /// Whether a driver callback runs, see `FreeState::in_driver_callback`.
    pub in_driver_callback: bool,
}

/// The counters read before a barrier or a wait, and the number of the barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubmissionReading {
    submitted: CounterReading,
    host_visible: CounterReading,
    number: BarrierNumber,
}

/// The next step of a free whose barrier was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterBarrier {
    /// All later work that can reach the block is ordered after the barrier.
    MayPublish,
    /// An observer has appeared meanwhile: wait for the barrier's event before publishing.
    WaitFirst,
}

impl Ledger {
    /// Where code without a compiler finds the counters of the lane `Own`, and the state of
    /// `deferral`, which may be `MULTIPLE`.
    pub const OF_OWN_BEGUN: usize =
        offset_of!(Ledger, submitted) + SubmissionCounters::OF_OWN_BEGUN;
    pub const OF_OWN_ENDED: usize =
        offset_of!(Ledger, submitted) + SubmissionCounters::OF_OWN_ENDED;
    pub const OF_DEFERRAL: usize = offset_of!(Ledger, deferral);
    pub const MULTIPLE: i32 = ANY_STREAM as i32;

    /// Returns the state of a process that has done nothing yet.
    pub const fn new() -> Ledger {
        Ledger {
            submitted: SubmissionCounters::new(),
            host_visible: SubmissionCounters::new(),
            exclusive: Exclusive::new(),
            visible: Visible::new(),
            elision: Elision::new(),
            deferral: DeferralState::new(),
            deferring_context: DeferringContext::new(),
        }
    }

    /// Counts a submission of a process with several contexts. If this returns `true`, first wait
    /// for the pending barriers of every context, then call `exclusive.waited()`.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn submits(&self, context_id: u64, host_visible: bool) -> bool {
        let wait_first = self.exclusive.submits(context_id);
        self.begin(host_visible, Lane::Shared);
        wait_first
    }

    /// Counts a submission. Call it before the real call of class submit or order, and before
    /// `exclusive.submits`.
    ///
    /// `host_visible`: whether the host could see the effect of the call without synchronizing, by
    /// the kind of the call; a kernel passes `every_kernel()` or better.
    #[inline]
    pub fn begin(&self, host_visible: bool, lane: Lane) {
        if host_visible {
            self.host_visible.begin(lane);
            if !rule_holds(Rule::VisibleWorkMarksBothSides) {
                self.host_visible.end(lane);
            }
        }
        self.submitted.begin(lane);
    }

    #[cfg(test)]
    pub(crate) fn submitted(&self, host_visible: bool) {
        self.end(host_visible, Lane::Shared);
    }

    /// Counts the end of a submission. Call it after the real call, whatever that returned, with
    /// the arguments of `begin`.
    #[inline]
    pub fn end(&self, host_visible: bool, lane: Lane) {
        if host_visible && rule_holds(Rule::VisibleWorkMarksBothSides) {
            self.host_visible.end(lane);
        }
        self.submitted.end(lane);
    }

    /// Makes every kernel count as visible from now on. Returns `true` the first time.
    ///
    /// Kernels already in flight may have written host memory unseen, through an address inside
    /// their data. The first cause therefore counts as one visible submission itself: the next free
    /// waits once.
    pub fn note_visible(&self, cause: VisibleCause) -> bool {
        // Counted before the cause can be seen: another thread with one may free next.
        if self.visible.causes() == 0 {
            self.host_visible.begin(Lane::Shared);
            self.host_visible.end(Lane::Shared);
        }
        self.visible.note(cause)
    }

    /// Records an observer. The result means the same as that of `submits`.
    #[must_use]
    pub fn note_observer(&self, observer: Observer) -> bool {
        self.exclusive.observe(observer)
    }

    /// Returns whether the host has waited for everything submitted that the hooks see. A free of a
    /// context block then needs to do nothing, whatever its other facts are (`free_context_block`),
    /// as long as the hooks see everything (`Elision::is_allowed`). Call it inside the free, and
    /// after that check.
    #[inline]
    pub fn tracked_is_over(&self, covers: &ContextCoverage) -> bool {
        self.submitted.nothing_begun_since(&covers.waited)
    }

    /// Returns the facts that decide the route of a free. Call it once, inside the free.
    pub fn facts(&self, covers: &ContextCoverage, situation: FreeInput) -> FreeState {
        // The counters are read before the observers. If the counters rely on another thread's
        // barrier, that barrier is recorded before this thread finds the process exclusive, and a
        // later observer finds it pending. In the other order both could miss it.
        let ordered_quiet = self.submitted.quiet_since(&covers.ordered);
        let waited_quiet = self.submitted.quiet_since(&covers.waited);
        let visible_quiet = self.host_visible.quiet_since(&covers.host_visible);
        FreeState {
            mode: situation.mode,
            exclusive: self.exclusive.is_exclusive(situation.context_id),
            capturing: situation.capturing,
            barrier_calls: situation.barrier_calls,
            in_driver_callback: situation.in_driver_callback,
            ordered_quiet,
            waited_quiet,
            visible_quiet,
            elision: self.elision.is_allowed(),
        }
    }

    /// Takes a barrier number and reads the counters. Call it before the barrier is recorded, or
    /// before a wait for everything in the context.
    pub fn before_barrier(&self, covers: &ContextCoverage) -> SubmissionReading {
        SubmissionReading {
            submitted: self.submitted.before_barrier(),
            host_visible: self.host_visible.before_barrier(),
            number: covers.pending_barriers.take(),
        }
    }

    /// Returns whether a barrier of the submitting context may defer its wait: all submissions are
    /// seen, and all since the last wait went to one stream. The caller must hold the barrier lock.
    #[inline]
    pub fn may_defer(&self) -> bool {
        self.elision.is_allowed() && self.deferral.is_single_stream()
    }

    /// Returns whether the wait may be deferred for each of several streams, which then wait for
    /// themselves. Call it after the context is set as the deferring one.
    pub fn may_defer_per_stream(&self) -> bool {
        // Read after the context was set: either this thread sees one that is about to submit
        // unseen, or that thread sees the deferred wait. The state stays until a wait is submitted,
        // because the wait of an earlier barrier may be deferred too.
        self.deferral.defer_per_stream() && self.elision.is_allowed()
    }

    /// Records that the wait of the barrier was submitted. The caller must hold the barrier lock,
    /// and the context must be the deferring one.
    #[inline]
    pub fn wait_submitted(&self, seen: SubmissionReading, lane: Lane) {
        self.deferral.wait_submitted(&self.submitted, seen.submitted, lane);
    }

    /// Records the barrier. Call it after the barrier's wait was submitted or deferred and its
    /// event is filed, before the block is published.
    ///
    /// The order is: recorded, covered, checked for observers. D3 and Note [Showing an observer]
    /// need it.
    #[must_use]
    pub fn barrier_is_in(
        &self,
        covers: &ContextCoverage,
        seen: SubmissionReading,
        context_id: u64,
    ) -> AfterBarrier {
        covers.pending_barriers.note(seen.number);
        covers.ordered.passed(seen.submitted);
        match self.exclusive.is_exclusive(context_id) {
            true => AfterBarrier::MayPublish,
            false => AfterBarrier::WaitFirst,
        }
    }
}

impl ContextCoverage {
    /// Returns the state of a context without a barrier or a wait.
    pub const fn new() -> ContextCoverage {
        ContextCoverage {
            ordered: Coverage::new(),
            waited: Coverage::new(),
            host_visible: Coverage::new(),
            pending_barriers: PendingBarriers::new(),
        }
    }

    /// Records that the host has waited for everything in this context that was submitted before
    /// `seen` was read. Completed work is ordered as well, and its barriers are complete.
    pub fn waited(&self, seen: SubmissionReading) {
        self.pending_barriers.complete(seen.number);
        self.ordered.passed(seen.submitted);
        self.waited.passed(seen.submitted);
        self.host_visible.passed(seen.host_visible);
    }

    /// Returns the barrier on which a free without its own barrier relies, for
    /// `TrackedBarrier::track`. A teardown waits for it too.
    pub fn pending(&self) -> Option<BarrierNumber> {
        self.pending_barriers.pending()
    }
}

impl SubmissionReading {
    /// Returns everything read, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn parts(self) -> ((u64, u64), (u64, u64), u64) {
        (self.submitted.parts(), self.host_visible.parts(), self.number.0)
    }

    /// Returns the number of the barrier that is recorded after these reads.
    pub fn number(&self) -> BarrierNumber {
        self.number
    }
}

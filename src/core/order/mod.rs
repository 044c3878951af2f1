//! The ordering rules: what a free must do so that the program can see no difference.
//!
//! On the plain driver, `cuMemFree` waits for all earlier work of its context. Programs rely on
//! that wait in three ways: their memory is not reused while in use, streams are ordered by it, and
//! what the host reads afterwards is finished. A free that only caches breaks all three. The rules
//! here decide which of them a free has to keep by a barrier or by a wait, and when there is
//! nothing to keep.
//!
//! Everything is pure bookkeeping with numbers: the runtime queries the driver, reports the results
//! here, and does what the functions return. In reading order:
//!
//! * `submission_counters`: was anything submitted since the last barrier, or the last wait?
//! * `exclusive`: may a barrier replace the wait at all in this process?
//! * `visible`: may the host see results without synchronizing; does the library see every
//!   submission?
//! * `route`: the decision for one free.
//! * `pending`: what later calls wait for after a free that did not wait.
//! * `deferral`: may a barrier defer its wait, because there is only one stream, or each stream
//!   waits for itself?
//! * `deferring_context`: which context has that deferred wait.
//! * `synced_streams`: which streams have waited for themselves.
//! * `captures`: which streams capture now; barriers would invalidate their captures.
//! * `reuse`: which freed blocks a capture may reuse.
//! * `completed`: which of the events of one stream are complete, with few queries.
//! * `ledger`: the parts above, combined in the only sound order.
//!
//! Memory orders: every atomic operation of this module is `SeqCst`, except three that explain why
//! not: the counters of the thread with its own lane (Note [Lanes]) and the tests in
//! `Exclusive::submits` and `DeferralState::can_proceed`. On x86 that costs nothing (a locked
//! instruction is one either way, a load is a plain load), on others little beside a driver call.
//! It has two benefits: the exhaustive tests in `tests/interleave.rs` explore one total order of
//! steps, which then *is* the memory model of this code; and a counter is incremented before the
//! submission that follows it even for an observer that learns of the submission from the device.

pub mod captures;
pub mod completed;
pub mod deferral;
pub mod deferring_context;
pub mod exclusive;
pub mod ledger;
pub mod pending;
pub mod reuse;
pub mod route;
pub mod submission_counters;
pub mod synced_streams;
pub mod visible;

pub use captures::{Begun, Capture, Captures};
pub use completed::completed_count;
pub use deferral::{ANY_STREAM, Admission, DeferralState};
pub use deferring_context::DeferringContext;
pub use exclusive::{Exclusive, Observer};
pub use ledger::{AfterBarrier, ContextCoverage, FreeInput, Ledger, SubmissionReading};
pub use pending::{BarrierNumber, PendingBarriers, TrackedBarrier};
pub use route::{
    FreeState, Mode, Route, StreamRoute, free_async_block_plainly, free_context_block,
    free_on_stream,
};
pub use submission_counters::{CounterReading, Coverage, Lane, SubmissionCounters};
pub use synced_streams::SyncedStreams;
pub use visible::{Elision, UntrackedSubmission, Visible, VisibleCause};

#[cfg(test)]
#[allow(unreachable_pub)]
pub(crate) mod tests;

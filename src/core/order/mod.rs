//! The ordering rules: what a free must do so that the program can see no difference.
//!
//! Natively `cuMemFree` waits for all earlier work of its context. Programs rely on that wait in three
//! ways: their memory is not reused while in use, streams are ordered by it, and what the host reads
//! afterwards is finished. A free that only caches breaks all three. The rules here say which of them a
//! free has to keep by a barrier or by a wait, and when there is nothing to keep.
//!
//! Everything is pure bookkeeping with numbers: the runtime queries the driver, reports the results
//! here, and does what the functions return. In reading order:
//!
//! * `marks`: was anything submitted since the last barrier, or the last wait?
//! * `exclusive`: may a barrier replace the wait at all in this process?
//! * `visible`: may the host see results without synchronizing; do we see every submission?
//! * `route`: the decision for one free.
//! * `pending`: what later calls wait for after a free that did not wait.
//! * `sole`: may a barrier put its wait off: because one stream is all there is, or each stream waits for itself?
//! * `debtor`: which context owes that wait.
//! * `behind`: which streams have waited for themselves.
//! * `captures`: which streams capture now; barriers would kill their captures.
//! * `reuse`: which freed blocks a capture may reuse.
//! * `over`: which of the events of one stream are over, with few questions.
//! * `ledger`: the parts above, combined in the only sound order.
//!
//! Orders: every atomic operation of this module is `SeqCst`, but three that say why not: the counters of the
//! thread with a lane of its own (Note [Lanes]) and the tests in `Exclusive::submits` and `SoleStream::admits`. On x86 that costs
//! nothing (a locked instruction is one either way, a load is a plain load), on others little beside a
//! driver call.
//! It buys two things: the exhaustive tests in `tests/interleave.rs` explore one total order of
//! steps, which then *is* the memory model of this code; and a mark stands before the submission
//! that follows it even for an observer that learns of the submission from the device.

pub mod behind;
pub mod captures;
pub mod debtor;
pub mod exclusive;
pub mod ledger;
pub mod marks;
pub mod over;
pub mod pending;
pub mod reuse;
pub mod route;
pub mod sole;
pub mod visible;

pub use behind::StreamsBehind;
pub use captures::{Begun, Capture, Captures};
pub use debtor::Debtor;
pub use exclusive::{Exclusive, Observer};
pub use ledger::{AfterBarrier, Covers, Ledger, SeenAll, Situation};
pub use marks::{Cover, Lane, Marks, Seen};
pub use over::over_count;
pub use pending::{BarrierNumber, PendingBarriers, TrackedBarrier};
pub use route::{
    Facts, Mode, Route, StreamRoute, free_async_block_plainly, free_context_block, free_on_stream,
};
pub use sole::{ANY_STREAM, Move, SoleStream};
pub use visible::{BlindSpot, Elision, Visible, VisibleCause};

#[cfg(test)]
#[allow(unreachable_pub)]
pub(crate) mod tests;

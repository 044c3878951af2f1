//! Ends the elision of barriers (docs/ordering.md 6): the library never assumes that it observes
//! everything.

use cachealloc_core::order::UntrackedSubmission;

use crate::gate;
use crate::gate::Condition;
use crate::log;
use crate::ordering::before_submission;
use crate::state::barriers::LEDGER;

/// Ends the elision: no barrier is skipped from now on. `why` gives the reason.
pub(crate) fn end(why: &str) {
    note(UntrackedSubmission::UnknownFunction, why);
}

/// Ends the elision, and records the cause for the report.
pub(crate) fn note(cause: UntrackedSubmission, why: &str) {
    gate::set(Condition::Untracked);
    let is_first = LEDGER.elision.ends(cause);
    // Another thread may be in this call, and a deferred wait not submitted yet.
    before_submission::flush_all();
    if is_first {
        log::info(format_args!("{why}: every free issues a barrier and waits from now on"));
    }
}

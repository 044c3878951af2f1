//! Ends the skipping of barriers (docs/ordering.md 6): we never assume that we saw everything.

use cachealloc_core::order::BlindSpot;

use crate::log;
use crate::ordering::LEDGER;

/// No barrier is skipped from now on, because of what `why` says.
pub fn end(why: &str) {
    note(BlindSpot::UnknownFunction, why);
}

/// As `end`, with the cause kept for the report.
pub fn note(cause: BlindSpot, why: &str) {
    if LEDGER.skipping.ends(cause) {
        log::info(format_args!("{why}: every free makes a barrier and waits from now on"));
    }
}

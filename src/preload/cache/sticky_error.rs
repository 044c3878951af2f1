//! Sticky errors: work in a context failed in a way from which no later call there recovers. The
//! driver's own allocation fails with the same code; one from the cache would succeed.
//!
//! A call of the program has returned the error, perhaps for another context than the current one.
//! So the next allocation in each context asks the driver.

use core::sync::atomic::Ordering;

use cachealloc_core::order::Lane;

use crate::driver::api;
use crate::driver::sys::CuError;
use crate::ordering::native_wait;
use crate::ordering::native_wait::SENTINEL_BYTES;
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;

/// Notes that a call of the program returned such a code. Call it where the library's own driver
/// calls are not observed. The driver's own next free would fail too. So the error counts as
/// submitted work: the next free cannot skip its barrier, which reports the error.
pub(crate) fn note() {
    LEDGER.begin(false, Lane::Shared);
    LEDGER.end(false, Lane::Shared);
    for context in contexts::all() {
        if !context.has_sticky_error.swap(true, Ordering::Relaxed) {
            bypass::leave_fast_path();
        }
    }
}

/// Returns the error that an allocation in the current context would return without the library, if
/// any. Asks the driver, and waits for no work, as the driver's own allocation does not (hazard
/// 10).
#[cold]
pub(crate) fn of(context: &Context) -> Option<CuError> {
    if !context.has_sticky_error.load(Ordering::Relaxed) {
        return None;
    }
    let probe = api::relaxed(|| api::mem_alloc(SENTINEL_BYTES));
    if let Ok(pointer) = probe {
        context.has_sticky_error.store(false, Ordering::Relaxed);
        if !api::relaxed(|| {
            context.release_streams.give_back_untouched(pointer, SENTINEL_BYTES as u64)
        }) {
            native_wait::keep(context, pointer);
        }
    }
    probe.err().filter(|error| error.means_lost())
}

//! All work of a context: tests whether it has completed, and waits for it as the driver's own free
//! does. Used for memory that is not a block of the core.

use cachealloc_core::order::{FreeState, Mode, Route, free_context_block};

use crate::cache::free::facts;
use crate::driver::api;
use crate::driver::sys::CuResult;
use crate::ordering::barrier;
use crate::ordering::native_wait::wait_natively;
use crate::state::contexts::Context;
use crate::state::thread::Thread;
use crate::statistics::waits::Wait;

/// Returns the route of a free that always waits.
fn route(context: &Context) -> Route {
    free_context_block(&FreeState { mode: Mode::Strict, ..facts(context) })
}

/// Returns whether all work of the context has completed. Never waits.
pub(super) fn is_over(thread: &Thread, context: &'static Context) -> bool {
    let recorded = || barrier::record(thread, context).ok();
    route(context) == Route::Publish
        || recorded().is_some_and(|recorded| api::relaxed(|| recorded.event.query()).is_ok())
}

/// Waits for all work of the context before a call of the driver that waits for it too, where that
/// is possible without holding the context meanwhile.
pub(crate) fn wait_ahead(thread: &Thread, context: &'static Context) {
    if route(context) == Route::Wait {
        // The driver's call reports errors.
        let _ = wait_by_event(thread, context);
    }
}

/// Waits for all work of the context, as the driver's own free does.
pub(crate) fn wait(thread: &Thread, context: &'static Context) -> CuResult {
    let by_event = match route(context) {
        Route::Publish => return Ok(()),
        Route::Wait => wait_by_event(thread, context),
        _ => None,
    };
    by_event.unwrap_or_else(|| wait_natively(context, Wait::Teardown))
}

/// Returns `None` if no event can be recorded.
fn wait_by_event(thread: &Thread, context: &'static Context) -> Option<CuResult> {
    let recorded = barrier::record(thread, context).ok()?;
    Some(barrier::wait(context, &recorded, Wait::Teardown))
}

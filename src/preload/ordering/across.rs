//! The option `across_contexts:barrier`: the program promises that it orders its contexts by its
//! own events or waits (docs/ordering.md 3). A free then keeps none of the driver's order between
//! them.
//!
//! Note [The program's promise]. On the plain driver, a thread that knows of a free knows that the
//! work of the free's context has completed. With a barrier it has not, and other contexts are not
//! ordered after the barrier. The library could make a second context wait when another thread uses
//! it. That would be right if the thread knows of the free, and could hang if not: the thread may
//! submit what that work waits for. The library cannot see which is the case, so only a promise
//! helps. Under the promise:
//! * other contexts, and peers, are no observers;
//! * a call that has to wait for earlier frees waits for those that have surely returned to its
//!   thread, and would have waited on the plain driver: its own in every context, those of threads
//!   that have ended, and those of the current context. For other threads' frees elsewhere it never
//!   waits without a limit.

use cachealloc_core::order::Observer;
use cachealloc_options::AcrossContexts;

use crate::config;

/// Returns whether the program has made the promise.
#[inline]
pub(crate) fn is_promised() -> bool {
    config::get().across_contexts == AcrossContexts::Barrier
}

/// Returns whether the promise covers this observer.
pub(crate) fn is_kept_by_program(observer: Observer) -> bool {
    is_promised() && matches!(observer, Observer::SecondContext | Observer::PeerAccess)
}

//! The option `across_contexts:barrier`: the program promises that it orders its contexts by events or waits
//! of its own (docs/ordering.md 3). Then a free keeps nothing of the native order between them.
//!
//! Note [The program's promise]. Natively a thread that knows of a free knows that the work of the free's
//! context is over. With a barrier it is not, and another context is not behind the barrier. To wait for it
//! where another thread comes to a second context would be right if that thread knows of the free, and could
//! hang if not: the thread may bring what that work waits for. We cannot see which, so only a promise helps,
//! and under it
//! * other contexts, and peers, are no observers;
//! * a call that has to wait for earlier frees waits for those that surely have returned to its thread,
//!   and natively would have waited: its own in every context, those of threads that have ended, and those
//!   of the context that is current; for other threads' frees elsewhere never without a limit.

use cachealloc_core::order::Observer;
use cachealloc_options::AcrossContexts;

use crate::config;

/// Whether the program has made the promise.
#[inline]
pub(crate) fn is_promised() -> bool {
    config::get().across_contexts == AcrossContexts::Barrier
}

/// Whether the promise speaks of this observer.
pub(crate) fn is_kept_by_program(observer: Observer) -> bool {
    is_promised() && matches!(observer, Observer::SecondContext | Observer::PeerAccess)
}

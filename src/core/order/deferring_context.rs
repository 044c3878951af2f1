//! The context that has a deferred wait for its barriers: at most one of the process.
//!
//! The stream state in `deferral` belongs to the process: a submission reads it without looking at
//! its context. A barrier is made, and a deferred wait submitted, under the barrier lock of a
//! context, and each context has its own lock. So a lock protects only state that one context
//! changes:
//! * W1: A barrier changes the stream state only if its context is the one that submits
//!   (`Exclusive`), which it stays until it has ended. The streams are that context's: the wait of
//!   another one proves nothing about them.
//! * W2: It does so only while its context is the deferring one. A context becomes that, checks it,
//!   and clears it under its own lock. So a deferred wait is submitted and forgotten by the context
//!   that deferred it: not by a thread that has waited for the lock of one that has ended
//!   meanwhile.
//!
//! `tests/deferral` explores the steps with two contexts.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

use crate::order::exclusive::NO_CONTEXT;

/// The context that has a deferred wait, by `cuCtxGetId`.
#[derive(Debug)]
pub struct DeferringContext(AtomicU64);

impl DeferringContext {
    /// Returns the state without a deferred wait.
    pub const fn new() -> DeferringContext {
        DeferringContext(AtomicU64::new(NO_CONTEXT))
    }

    /// Returns the context, which may have ended.
    pub fn context_id(&self) -> Option<u64> {
        Some(self.0.load(SeqCst)).filter(|id| *id != NO_CONTEXT)
    }

    /// Returns whether it is this context. The answer holds while the context's barrier lock is
    /// held.
    #[inline]
    pub fn is(&self, context_id: u64) -> bool {
        self.0.load(SeqCst) == context_id
    }

    /// Makes this context the deferring one. Returns `false` if another context is. The caller must
    /// hold the barrier lock of the context.
    pub fn try_set(&self, context_id: u64) -> bool {
        let from = self.0.compare_exchange(NO_CONTEXT, context_id, SeqCst, SeqCst);
        from.is_ok() || from == Err(context_id)
    }

    /// Records that this context has no deferred wait any more. The caller must hold its barrier
    /// lock.
    pub fn clear(&self, context_id: u64) {
        let _ = self.0.compare_exchange(context_id, NO_CONTEXT, SeqCst, SeqCst);
    }

    /// Returns a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(context_id: Option<u64>) -> DeferringContext {
        DeferringContext(AtomicU64::new(context_id.unwrap_or(NO_CONTEXT)))
    }
}

impl Default for DeferringContext {
    fn default() -> DeferringContext {
        DeferringContext::new()
    }
}

//! Which context owes a wait that its barriers have put off: at most one of the process.
//!
//! What `deferral` says of the streams belongs to the process: a submission asks for it without a
//! look at its context. But a barrier is made, and a wait that was put off is put in, under the
//! gate of a context, and there is one gate for each. So a gate protects what only one context
//! changes:
//! * W1: A barrier changes what is said of the streams only if its context is the one that submits
//!   (`Exclusive`), which it stays until it has ended. The streams are that context's: the wait of
//!   another one says nothing of them.
//! * W2: And only while its context is the debtor. It becomes that, is asked whether it is, and
//!   owes no more under its own gate. So what is owed is paid and forgotten by the context that
//!   owes it: not by a thread that has waited for the gate of one that has ended meanwhile.
//!
//! `tests/deferral` explores the steps with two contexts.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

use crate::order::exclusive::NO_CONTEXT;

/// The context that has a deferred wait, by `cuCtxGetId`.
#[derive(Debug)]
pub struct DeferringContext(AtomicU64);

impl DeferringContext {
    /// Nothing is owed.
    pub const fn new() -> DeferringContext {
        DeferringContext(AtomicU64::new(NO_CONTEXT))
    }

    /// The context, perhaps one that has ended.
    pub fn context_id(&self) -> Option<u64> {
        Some(self.0.load(SeqCst)).filter(|id| *id != NO_CONTEXT)
    }

    /// Whether it is this one. Stays so while its gate is held.
    #[inline]
    pub fn is(&self, context_id: u64) -> bool {
        self.0.load(SeqCst) == context_id
    }

    /// This context owes from now on, or did already. Call with its gate held. False: another one
    /// owes.
    pub fn try_set(&self, context_id: u64) -> bool {
        let from = self.0.compare_exchange(NO_CONTEXT, context_id, SeqCst, SeqCst);
        from.is_ok() || from == Err(context_id)
    }

    /// This context owes nothing any more. Call with its gate held.
    pub fn clear(&self, context_id: u64) {
        let _ = self.0.compare_exchange(context_id, NO_CONTEXT, SeqCst, SeqCst);
    }

    /// In a given state, for tests that explore states.
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

//! Whether the memory is exclusive to the work of one context. If so, a barrier of the context may
//! replace the wait of the driver's own free.
//!
//! A barrier orders the later work of its own context, and nothing else. As soon as anything but
//! one context's work can reach the memory (a second context, a peer, another process, a network
//! card), only a real wait does. That is permanent: an observer cannot be undone.
//!
//! Note [Showing an observer]. Blocks may have been handed out after barriers that are still
//! pending. The call that reveals an observer therefore
//!   1. calls `observe`; while that returns true:
//!   2. waits for the pending barriers of every context (`PendingBarriers::pending`),
//!   3. calls `waited`,
//!   4. and only then lets the observer see anything: a submission is forwarded, any other call,
//!      which the driver has accepted by then, returns to the program. Before that nothing has the
//!      handle, the access or the memory.
//!
//! A free that found the process exclusive reads it *again* after its barrier was recorded and
//! noted as pending, before it publishes (`Ledger::barrier_is_in`). One of the two threads sees the
//! other: either that call finds the barrier pending, or the free finds the process not exclusive
//! and waits. That holds in one total order of steps only, hence `SeqCst`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::rules::{Rule, rule_holds};

/// An observer: something that may reach the memory without waiting for the context's barriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Observer {
    /// A second context submitted work.
    SecondContext,
    /// `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`.
    Ipc,
    /// Peer access of contexts, or `cuMemPoolSetAccess` for another device.
    PeerAccess,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` was set.
    SyncMemops,
    /// `CU_POINTER_ATTRIBUTE_P2P_TOKENS` was requested.
    P2pTokens,
    /// `cuMemGetHandleForAddressRange`.
    AddressRangeHandle,
    /// External memory or an external semaphore was imported.
    External,
    /// A library that lets other hardware read device memory (ibverbs, cufile, gdrcopy) is loaded.
    RdmaLibrary,
    /// A green context exists.
    GreenContext,
    /// A communication library creates symmetric memory: other processes reach it without its
    /// kernels.
    SymmetricMemory,
    /// The driver has no barrier calls (older than 12.5).
    NoBarrierCalls,
    /// The process ends: no later call will come that could perform the wait for a free.
    ProcessEnd,
}

/// Whether the process is exclusive. Sticky: exclusive until an observer appears.
#[derive(Debug)]
pub struct Exclusive {
    /// Bit n: observer number n has appeared. `WAITED`: the waits of the note are done.
    observed: AtomicU32,
    /// The one context that has submitted; `NO_CONTEXT` before the first submission.
    submitter: AtomicU64,
}

impl Exclusive {
    /// Returns the state without a submission or an observer.
    pub const fn new() -> Exclusive {
        Exclusive { observed: AtomicU32::new(0), submitter: AtomicU64::new(NO_CONTEXT) }
    }

    /// Returns whether a barrier of this context (by `cuCtxGetId`) may replace a wait.
    #[inline]
    pub fn is_exclusive(&self, context_id: u64) -> bool {
        if self.observed.load(SeqCst) != 0 {
            return false;
        }
        let submitter = self.submitter.load(SeqCst);
        submitter == NO_CONTEXT
            || submitter == context_id
            || !rule_holds(Rule::ExclusiveContextOnly)
    }

    /// Records an observer. Returns `true` if the caller must wait first (Note [Showing an
    /// observer]).
    ///
    /// Every thread that calls this before the first `waited` gets `true`, not only the first one:
    /// none may continue without a wait.
    pub fn observe(&self, observer: Observer) -> bool {
        if observer == Observer::SecondContext && !rule_holds(Rule::ExclusiveContextOnly) {
            return false;
        }
        let bit = 1 << observer as u32;
        let before = self.observed.load(SeqCst);
        if before & bit != 0 && before & WAITED != 0 {
            return false;
        }
        self.observed.fetch_or(bit, SeqCst) & WAITED == 0
    }

    /// Records that every barrier pending at some moment after `observe` is complete. From here on
    /// frees wait themselves, so no later observer finds a pending barrier on a published block.
    pub fn waited(&self) {
        debug_assert!(self.observed.load(SeqCst) != 0, "waited without an observer");
        self.observed.fetch_or(WAITED, SeqCst);
    }

    /// Records a submission of this context. Call it before every submission, after its counter.
    /// Returns `true` if the caller must wait first, because this is work of a second context (see
    /// `observe`).
    #[inline]
    pub fn submits(&self, context_id: u64) -> bool {
        debug_assert!(context_id != NO_CONTEXT, "a context id that means none");
        // The context's own id, once stored, stays while the context lives: this read may be
        // arbitrarily old.
        if self.submitter.load(Relaxed) == context_id {
            return false;
        }
        match self.submitter.compare_exchange(NO_CONTEXT, context_id, SeqCst, SeqCst) {
            Ok(_) => false,
            Err(first) if first == context_id => false,
            Err(_) => self.observe(Observer::SecondContext),
        }
    }

    /// Returns whether this is the context that submits. It remains so until it has ended.
    #[inline]
    pub fn is_submitter(&self, context_id: u64) -> bool {
        self.submitter.load(SeqCst) == context_id
    }

    /// Attributes everything submitted so far to this context, where submissions are not watched
    /// because there is only one context. Returns `false` if another context is the submitter by
    /// now.
    pub fn counts_as_submitter(&self, context_id: u64) -> bool {
        let from = self.submitter.compare_exchange(NO_CONTEXT, context_id, SeqCst, SeqCst);
        from.is_ok() || from == Err(context_id)
    }

    /// Records that the context is gone and all its work complete: another one may now be the only
    /// one.
    pub fn ended(&self, context_id: u64) {
        let _ = self.submitter.compare_exchange(context_id, NO_CONTEXT, SeqCst, SeqCst);
    }

    /// Returns a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(observed: u32, submitter: u64) -> Exclusive {
        Exclusive { observed: AtomicU32::new(observed), submitter: AtomicU64::new(submitter) }
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> (u32, u64) {
        (self.observed.load(SeqCst), self.submitter.load(SeqCst))
    }

    /// Returns whether this observer has appeared.
    pub fn has_observed(&self, observer: Observer) -> bool {
        self.observers() & 1 << observer as u32 != 0
    }

    /// Returns the observers that have appeared, for the report: bit n is observer number n.
    pub fn observers(&self) -> u32 {
        self.observed.load(SeqCst) & !WAITED
    }
}

impl Default for Exclusive {
    fn default() -> Exclusive {
        Exclusive::new()
    }
}

/// No context has this id; the driver counts up from small numbers.
pub(crate) const NO_CONTEXT: u64 = u64::MAX;
const WAITED: u32 = 1 << 31;

const _: () = assert!((Observer::ProcessEnd as u32) < 31, "one bit for each observer");

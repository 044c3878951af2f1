//! Whether the memory is exclusive to the work of one context. Then a barrier of the context may
//! stand in for the wait of a native free.
//!
//! A barrier orders the later work of its own context, and nothing else. As soon as anything but
//! one context's work can reach the memory (a second context, a peer, another process, a network
//! card), only a real wait does. That is permanent: an observer cannot be undone.
//!
//! Note [Showing an observer]. Blocks were handed out behind barriers that may still be pending.
//! The call that reveals an observer therefore
//!   1. calls `observe`; while that returns true:
//!   2. waits for the pending barriers of every context (`PendingBarriers::pending`),
//!   3. calls `waited`,
//!   4. and only then lets the observer see anything: a submission is forwarded, any other call,
//!      which the driver has accepted by then, returns to the program. Before that nothing has the
//!      handle, the access or the memory.
//!
//! A free that found the process exclusive reads it *again* after its barrier was made and noted as
//! pending, before it publishes (`Ledger::barrier_is_in`). Of the two threads one sees the other:
//! either that call finds the barrier pending, or the free finds the process not exclusive and
//! waits. That holds in one total order of steps only, hence `SeqCst`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::rules::{Rule, rule_holds};

/// What may reach the memory past the barriers of its context.
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
    /// `CU_POINTER_ATTRIBUTE_P2P_TOKENS` was asked for.
    P2pTokens,
    /// `cuMemGetHandleForAddressRange`.
    AddressRangeHandle,
    /// External memory or an external semaphore was imported.
    External,
    /// A library that lets other hardware read device memory (ibverbs, cufile, gdrcopy) is loaded.
    RdmaLibrary,
    /// A green context exists.
    GreenContext,
    /// A communication library makes symmetric memory: other processes reach it without its
    /// kernels.
    SymmetricMemory,
    /// The driver has no barrier calls (older than 12.5).
    NoBarrierCalls,
    /// The process ends: later calls, to which a free might leave its wait, no longer come.
    ProcessEnd,
}

/// Sticky: exclusive until an observer appears.
#[derive(Debug)]
pub struct Exclusive {
    /// Bit n: observer number n has appeared. `WAITED`: the waits of the note are done.
    observed: AtomicU32,
    /// The one context that has submitted; `NO_CONTEXT` before the first submission.
    submitter: AtomicU64,
}

impl Exclusive {
    /// No submission, no observer yet.
    pub const fn new() -> Exclusive {
        Exclusive { observed: AtomicU32::new(0), submitter: AtomicU64::new(NO_CONTEXT) }
    }

    /// Whether a barrier of this context (by `cuCtxGetId`) may stand in for a wait.
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

    /// Records an observer. True: wait first, as in Note [Showing an observer]. Every thread that
    /// comes before the first `waited` gets true, not only the first: none may continue without a
    /// wait.
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

    /// Every barrier pending at some moment after `observe` is complete. From here on frees wait
    /// themselves, so that no later observer finds a pending barrier on a published block.
    pub fn waited(&self) {
        debug_assert!(self.observed.load(SeqCst) != 0, "waited without an observer");
        self.observed.fetch_or(WAITED, SeqCst);
    }

    /// Call before every submission, ahead of its mark. True as in `observe`: this is work of a
    /// second context.
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

    /// Whether it is this context that submits. It stays that until it has ended.
    #[inline]
    pub fn is_submitter(&self, context_id: u64) -> bool {
        self.submitter.load(SeqCst) == context_id
    }

    /// As `is_submitter`, where submissions are not watched since there is one context only: from
    /// now on what has been submitted is this one's. False: there is another one by now.
    pub fn counts_as_submitter(&self, context_id: u64) -> bool {
        let from = self.submitter.compare_exchange(NO_CONTEXT, context_id, SeqCst, SeqCst);
        from.is_ok() || from == Err(context_id)
    }

    /// The context is gone, and all its work is over: another one may now be the only one.
    pub fn ended(&self, context_id: u64) {
        let _ = self.submitter.compare_exchange(context_id, NO_CONTEXT, SeqCst, SeqCst);
    }

    /// In a given state, for tests that explore states.
    #[cfg(test)]
    pub(crate) fn at(observed: u32, submitter: u64) -> Exclusive {
        Exclusive { observed: AtomicU32::new(observed), submitter: AtomicU64::new(submitter) }
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> (u32, u64) {
        (self.observed.load(SeqCst), self.submitter.load(SeqCst))
    }

    /// Whether this observer has appeared.
    pub fn has_observed(&self, observer: Observer) -> bool {
        self.observers() & 1 << observer as u32 != 0
    }

    /// Which observers have appeared, for the report: bit n is observer number n.
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

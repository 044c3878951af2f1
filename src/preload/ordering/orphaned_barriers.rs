//! Barriers of last frees that no thread record holds: those of threads that have ended, and of
//! threads that free in several contexts without a wait (`across_contexts`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::order::BarrierNumber;

use crate::lock::lock;
use crate::state::events::EventRef;
use crate::state::thread::Thread;

/// A pending barrier of a free.
#[derive(Clone)]
pub(super) struct FreeBarrier {
    pub context_id: u64,
    pub number: BarrierNumber,
    pub event: EventRef,
}

impl FreeBarrier {
    /// Returns whether a wait for this includes a wait for the other.
    fn is_as_late_as(&self, other: &FreeBarrier) -> bool {
        self.context_id == other.context_id && self.number >= other.number
    }
}

/// A list, and its length, readable without the lock.
struct List<T> {
    all: Mutex<Vec<T>>,
    count: AtomicUsize,
}

/// Barriers of threads that have ended: the newest of each context, which includes those before it.
static LEFT: List<FreeBarrier> = List::new();

/// The last barrier of each thread in each context except that of its very last free.
static ASIDE: List<(usize, FreeBarrier)> = List::new();

impl<T> List<T> {
    const fn new() -> List<T> {
        List { all: Mutex::new(Vec::new()), count: AtomicUsize::new(0) }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let mut all = lock(&self.all);
        let answer = change(&mut all);
        self.count.store(all.len(), Ordering::Release);
        answer
    }
}

/// Stashes the barrier of a thread that now frees in another context.
pub(super) fn stash(thread: &Thread, barrier: FreeBarrier) {
    let owner = thread.number();
    ASIDE.change(|all| {
        all.retain(|(of, other)| *of != owner || other.context_id != barrier.context_id);
        all.push((owner, barrier));
    });
}

/// Takes the barriers stashed for this thread.
pub(super) fn take(thread: &Thread) -> Vec<FreeBarrier> {
    if ASIDE.is_empty() {
        return Vec::new();
    }
    let owner = thread.number();
    ASIDE.change(|all| {
        let own = all.extract_if(.., |(of, _)| *of == owner);
        own.map(|(_, barrier)| barrier).collect()
    })
}

/// Adds the last barrier of a thread that ends.
pub(super) fn leave(own: FreeBarrier) {
    LEFT.change(|all| {
        if !all.iter().any(|other| other.is_as_late_as(&own)) {
            all.retain(|other| !own.is_as_late_as(other));
            all.push(own);
        }
    });
}

/// Returns the barriers of threads that have ended.
pub(super) fn left() -> Vec<FreeBarrier> {
    if LEFT.is_empty() { Vec::new() } else { lock(&LEFT.all).clone() }
}

/// Drops barriers that were waited for.
pub(super) fn are_over(waited: &[FreeBarrier]) {
    if !waited.is_empty() {
        let is_over = |one: &FreeBarrier| waited.iter().any(|waited| waited.is_as_late_as(one));
        LEFT.change(|all| all.retain(|one| !is_over(one)));
    }
}

/// Drops the barriers of a context that has ended.
pub(crate) fn context_ended(context_id: u64) {
    if !LEFT.is_empty() {
        LEFT.change(|all| all.retain(|left| left.context_id != context_id));
    }
    if !ASIDE.is_empty() {
        ASIDE.change(|all| all.retain(|(_, aside)| aside.context_id != context_id));
    }
}

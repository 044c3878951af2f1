//! Tracks which kernels were used in which context: the first use may make the driver load a
//! kernel.

use core::ptr::{null_mut, without_provenance_mut};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::heap;
use crate::lock::lock;
use crate::recent::Recent;

/// How a kernel or a graph is used. Each way has a first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// The code of the kernel is needed.
    Code,
    /// The code and its launch resources are needed.
    Launch,
    /// A graph is launched or uploaded.
    Graph,
}

/// Keys of the uses so far.
pub(crate) type Known = Option<HashSet<usize>>;

/// All uses so far.
static KNOWN: Mutex<Known> = Mutex::new(None);
/// Keys of some of the uses, readable without the lock.
static RECENT: Recent<()> = Recent::new();

/// Whether this handle is used this way in this context for the first time. Only one call returns
/// `true`.
pub(crate) fn is_first(handle: usize, context_id: u64, what: Use) -> bool {
    let key = key(handle, context_id, what);
    RECENT.at(key).load(Ordering::Relaxed).addr() != key && is_first_slow(key)
}

fn key(handle: usize, context_id: u64, what: Use) -> usize {
    handle ^ (context_id as usize).rotate_right(16) ^ (what as usize).rotate_right(2)
}

#[cold]
fn is_first_slow(key: usize) -> bool {
    if heap::is_short() {
        return false;
    }
    let mut known = lock(&KNOWN);
    let is_first = known.get_or_insert_default().insert(key);
    // Under the lock, so that `forget_all` cannot intervene.
    RECENT.at(key).store(without_provenance_mut(key), Ordering::Relaxed);
    is_first
}

/// Forgets a graph that has ended, because its handle may be reused.
pub(crate) fn forget_graph(executable: usize, context_id: u64) {
    let key = key(executable, context_id, Use::Graph);
    let mut known = lock(&KNOWN);
    if known.as_mut().is_some_and(|known| known.remove(&key)) {
        RECENT.at(key).store(null_mut(), Ordering::Relaxed);
    }
}

/// Forgets all uses, because handles may be reused or the entries no longer hold.
pub(crate) fn forget_all() {
    drop(take_all());
}

/// Takes all uses out before a call that may be refused.
pub(crate) fn take_all() -> Known {
    let mut known = lock(&KNOWN);
    let all = known.take();
    if all.is_some() {
        RECENT.forget();
    }
    all
}

/// Restores the uses after the call was refused.
pub(crate) fn put_back(all: Known) {
    if let Some(all) = all {
        lock(&KNOWN).get_or_insert_default().extend(all);
    }
}

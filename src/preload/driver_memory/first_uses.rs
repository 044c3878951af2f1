//! Which kernels were used in which context: the first use may make the driver load one.

use core::ptr::{null_mut, without_provenance_mut};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::heap;
use crate::lock::lock;
use crate::recent::Recent;

/// What a kernel or a graph is used for; each has a first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Its code is needed.
    Code,
    /// So is what it runs in.
    Launch,
    /// A graph is launched or uploaded.
    Graph,
}

/// First uses.
pub(crate) type Known = Option<HashSet<usize>>;

/// All so far.
static KNOWN: Mutex<Known> = Mutex::new(None);
/// Some of them: their keys.
static RECENT: Recent<()> = Recent::new();

/// Whether this handle is used so in this context for the first time. A call that says so is the first.
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
    // Under the lock: `forget_all` must not come between.
    RECENT.at(key).store(without_provenance_mut(key), Ordering::Relaxed);
    is_first
}

/// This graph has ended: its handle may be reused.
pub(crate) fn forget_graph(executable: usize, context_id: u64) {
    let key = key(executable, context_id, Use::Graph);
    let mut known = lock(&KNOWN);
    if known.as_mut().is_some_and(|known| known.remove(&key)) {
        RECENT.at(key).store(null_mut(), Ordering::Relaxed);
    }
}

/// Handles may be reused, or what is known of them holds no more.
pub(crate) fn forget_all() {
    drop(take_all());
}

/// As `forget_all`, before a call that may be refused.
pub(crate) fn take_all() -> Known {
    let mut known = lock(&KNOWN);
    let all = known.take();
    if all.is_some() {
        RECENT.forget();
    }
    all
}

/// The call was refused.
pub(crate) fn put_back(all: Known) {
    if let Some(all) = all {
        lock(&KNOWN).get_or_insert_default().extend(all);
    }
}

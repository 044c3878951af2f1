//! Tracks which kernels were used in which context: the first use may make the driver load a
//! kernel.

use core::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::Ordering;

use crate::heap;
use crate::lists::recent::RecentTable;

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

/// All uses so far, by their keys. The place of a recent one holds its key.
pub(crate) static USES: RecentTable<(), ()> = RecentTable::new();

/// Whether this handle is used this way in this context for the first time. Only one call returns
/// `true`.
pub(crate) fn is_first(handle: usize, context_id: u64, what: Use) -> bool {
    let key = key(handle, context_id, what);
    USES.recent(key).load(Ordering::Relaxed).addr() != key && is_first_slow(key)
}

fn key(handle: usize, context_id: u64, what: Use) -> usize {
    handle ^ (context_id as usize).rotate_right(16) ^ (what as usize).rotate_right(2)
}

#[cold]
fn is_first_slow(key: usize) -> bool {
    if heap::is_short() {
        return false;
    }
    USES.with(|known| {
        USES.recent(key).store(without_provenance_mut(key), Ordering::Relaxed);
        known.insert(key, ()).is_none()
    })
}

/// Forgets a graph that has ended, because its handle may be reused.
pub(crate) fn forget_graph(executable: usize, context_id: u64) {
    let key = key(executable, context_id, Use::Graph);
    USES.with(|known| {
        if known.remove(&key).is_some() {
            USES.recent(key).store(null_mut(), Ordering::Relaxed);
        }
    });
}

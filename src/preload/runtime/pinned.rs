//! Host memory that the device can reach: pinned, registered. A copy or a kernel argument that
//! names it makes work visible to the host (DESIGN 3.3).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::runtime::lock;

/// Start of each range, and its end.
static RANGES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// Bounds of all ranges that ever were, for a look without the lock; empty while there is none.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any pinned memory is alive.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Whether an address lies in pinned memory.
#[inline]
pub fn contains(address: usize) -> bool {
    any()
        && address >= LOWEST.load(Ordering::Relaxed)
        && address < HIGHEST.load(Ordering::Relaxed)
        && contains_exactly(address)
}

/// Notes a range; one that starts there already only grows. Answers what `restore` needs if it
/// turns out not to be pinned.
pub fn insert(start: usize, bytes: usize) -> Option<usize> {
    let end = start.saturating_add(bytes);
    let mut ranges = lock(&RANGES);
    let before = ranges.get(&start).copied();
    ranges.insert(start, before.map_or(end, |before| before.max(end)));
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(end, Ordering::Relaxed);
    COUNT.store(ranges.len(), Ordering::Release);
    before
}

/// The driver refused what `insert` noted: what was pinned before still is.
pub fn restore(start: usize, before: Option<usize>) {
    let mut ranges = lock(&RANGES);
    match before {
        Some(end) => ranges.insert(start, end),
        None => ranges.remove(&start),
    };
    COUNT.store(ranges.len(), Ordering::Release);
}

/// Forgets the range that starts here.
pub fn remove(start: usize) {
    let mut ranges = lock(&RANGES);
    ranges.remove(&start);
    COUNT.store(ranges.len(), Ordering::Release);
}

fn contains_exactly(address: usize) -> bool {
    let ranges = lock(&RANGES);
    ranges.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
}

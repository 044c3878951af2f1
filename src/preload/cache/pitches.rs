//! How far apart the driver puts rows of memory. It depends on their width, on the size of an element and on the
//! device, not on the number of rows (measured); which it is, only the driver knows. So the first request for
//! rows of a width is its own, and later ones can be served from the cache.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock::lock;

/// Rows of more widths than these go to the driver.
const WIDTHS_MAX: usize = 4096;

static PITCHES: Mutex<BTreeMap<Rows, usize>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rows {
    pub device: i32,
    pub width_bytes: usize,
    pub element_bytes: u32,
}

/// In bytes. None: the driver has not said it yet.
pub(crate) fn pitch_of(rows: Rows) -> Option<usize> {
    lock(&PITCHES).get(&rows).copied()
}

/// What the driver said.
pub(crate) fn learn(rows: Rows, pitch_bytes: usize) {
    let mut pitches = lock(&PITCHES);
    if pitches.len() < WIDTHS_MAX {
        pitches.insert(rows, pitch_bytes);
    }
}

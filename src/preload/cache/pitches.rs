//! Pitch that the driver chooses for rows of memory. It depends on their width, on the size of an
//! element and on the device, not on the number of rows (measured); only the driver knows it. So
//! the driver itself serves the first request for rows of a width, and the cache can serve later
//! ones.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock::lock;

/// Most widths known. Requests of further widths go to the driver.
const WIDTHS_MAX: usize = 4096;

static PITCHES: Mutex<BTreeMap<Rows, usize>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rows {
    pub device: i32,
    pub width_bytes: usize,
    pub element_bytes: u32,
}

/// Returns the pitch in bytes, or `None` if the driver has not returned it yet.
pub(crate) fn pitch_of(rows: Rows) -> Option<usize> {
    lock(&PITCHES).get(&rows).copied()
}

/// Stores the pitch that the driver returned.
pub(crate) fn learn(rows: Rows, pitch_bytes: usize) {
    let mut pitches = lock(&PITCHES);
    if pitches.len() < WIDTHS_MAX {
        pitches.insert(rows, pitch_bytes);
    }
}

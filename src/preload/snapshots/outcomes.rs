//! The outcomes of the snapshots so far, for the statistics.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use cachealloc_statistics::Snapshots;

use crate::config;
use crate::lock::lock;

static PAST: Mutex<Snapshots> = Mutex::new(Snapshots {
    signal: None,
    written_count: 0,
    failed_count: 0,
    last: None,
    last_problem: None,
});

/// Notes that a snapshot was written, or failed.
pub(crate) fn note(path: &Path, written: &io::Result<u64>) {
    let mut past = lock(&PAST);
    match written {
        Ok(_) => {
            past.written_count += 1;
            past.last = Some(std::path::absolute(path).unwrap_or_default().display().to_string());
        }
        Err(error) => {
            past.failed_count += 1;
            past.last_problem = Some(format!("{}: {error}", path.display()));
        }
    }
}

/// Returns the outcomes of the snapshots so far, and the signal that requests one.
pub(crate) fn all() -> Snapshots {
    let mut past = lock(&PAST).clone();
    past.signal = config::get().history.signal;
    past
}

//! Files to read: random snapshots by the writer of our library, and those that Python makes of
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use cachealloc_analysis::model::{Entries, Entry, Snapshot};
use cachealloc_history as history;

/// The allocator that makes random sound histories also for the tests of the writer.
#[allow(dead_code)]
#[path = "../../../history/tests/history/random.rs"]
pub mod random;

pub fn history(seed: u64, steps: u64) -> history::Snapshot {
    let snapshot = random::snapshot(seed, steps);
    assert_eq!(snapshot.check(), Ok(()));
    snapshot
}

pub fn pickled(snapshot: &history::Snapshot) -> Vec<u8> {
    let mut file = Vec::new();
    let described = &mut random::Described::default();
    history::write_snapshot(snapshot, described, &mut file).expect("memory takes it");
    file
}

pub fn read(file: &[u8]) -> Snapshot {
    cachealloc_analysis::read(file).unwrap_or_else(|error| panic!("the file {error}"))
}

/// A directory for one test, removed when it ends.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(test: &str) -> Directory {
        let name = format!("analysis-{test}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("target/ is writable");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // only room is lost
    }
}

/// Changes entries as a list.
pub fn edit(entries: &mut Entries, change: impl FnOnce(&mut Vec<Entry>)) {
    let mut all: Vec<Entry> = entries.iter().collect();
    change(&mut all);
    *entries = all.into_iter().collect();
}

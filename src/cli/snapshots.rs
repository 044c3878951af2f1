//! Snapshots from files, with a bar where that takes long.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cachealloc_analysis::model::Snapshot;

use crate::commands::Result;
use crate::failure::Failure;
use crate::progress::Progress;

pub fn read(path: &Path) -> Result<Snapshot> {
    let name = path.display();
    let unreadable = |error: io::Error| {
        let failure = Failure::new(format!("{name} cannot be read: {error}"));
        match error.kind() {
            io::ErrorKind::NotFound => failure.next("cachealloc snapshot PID writes one"),
            _ => failure,
        }
    };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err(Failure::new(format!("{name} is a folder")).next("name the snapshots in it"));
    }
    let progress = Progress::new(&format!("reading {name}"), about.len());
    let counted = Counted { file, progress, done: 0 };
    cachealloc_analysis::read(counted).map_err(|error| Failure::new(format!("{name} {error}")))
}

struct Counted {
    file: File,
    progress: Progress,
    done: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.done += count as u64;
        self.progress.set(self.done);
        Ok(count)
    }
}

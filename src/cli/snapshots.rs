//! Reads snapshots from files, with a progress bar if that takes long.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::symbols::{self, DebugFolders};
use flate2::read::MultiGzDecoder;

use crate::commands::Result;
use crate::failure::Failure;
use crate::progress::Progress;

pub(crate) fn read(path: &Path) -> Result<Snapshot> {
    // `-` stands for stdin, as in other commands.
    let path = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
    let name = path.display();
    let unreadable = |error: io::Error| {
        let failure = Failure::new(format!("cannot read {name}: {error}"));
        match error.kind() {
            io::ErrorKind::NotFound => failure.next("write one with: cachealloc snapshot PID"),
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
    let snapshot = cachealloc_analysis::read(unpacked(counted).map_err(unreadable)?);
    let mut snapshot = snapshot.map_err(|error| Failure::new(format!("{name} {error}")))?;
    name_frames(&mut snapshot);
    Ok(snapshot)
}

/// Names the frames that lack a name and a line, if that is possible now. Other frames stay a
/// library and an offset.
fn name_frames(snapshot: &mut Snapshot) {
    let folders = DebugFolders::usual(|variable| std::env::var(variable).ok());
    if !symbols::lack_names(snapshot, &folders) {
        return;
    }
    let mut progress = None;
    symbols::symbolise(snapshot, &folders, |done, all| {
        progress.get_or_insert_with(|| Progress::new("looking up names", all)).set(done);
    });
}

/// Unpacks a file compressed by gzip, whatever its name.
fn unpacked(mut file: Counted) -> io::Result<Box<dyn Read>> {
    let mut begin = Vec::new();
    (&mut file).take(GZIP.len() as u64).read_to_end(&mut begin)?;
    let is_packed = begin == GZIP;
    let whole = io::Cursor::new(begin).chain(file);
    Ok(if is_packed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

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

//! Files that the command writes: whole or not there, and never in the place of a snapshot.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::commands::Result;
use crate::failure::Failure;
use crate::progress::Progress;

/// This name is stdout, as for other commands.
const STDOUT: &str = "-";

/// Has somebody write, to a file of this name or to stdout. A file comes into being beside its place, and
/// takes it when it is whole: what was there before stays until then.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    if path.as_os_str() == STDOUT {
        return to_stdout(write);
    }
    if is_snapshot(path) {
        let what = format!("{} is a snapshot, and would be written over", path.display());
        return Err(Failure::new(what).next("name the file to write with -o"));
    }
    let is_plain = fs::symlink_metadata(path).map_or(true, |about| about.is_file());
    let written = if is_plain {
        beside(path, write)
    } else {
        File::create(path).and_then(|file| to(file, write))
    };
    written.map_err(|error| explain(path, &error))
}

pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("stdout cannot be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn to(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let progress = Progress::waiting("writing");
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Watched { file, progress });
    write(&mut out).and_then(|()| out.flush())
}

const BUFFER_BYTES: usize = 64 << 10;

/// A file, and a sign of life where it takes long.
struct Watched {
    file: File,
    progress: Progress,
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.progress.tick();
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn beside(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    // In a folder that is closed, a file may be open.
    let Ok(file) = File::create(&part) else { return to(File::create(path)?, write) };
    let moved = to(file, write).and_then(|()| fs::rename(&part, path));
    if moved.is_err() {
        let _ = fs::remove_file(&part);
    }
    moved
}

/// `report -o *.pickle` names the first snapshot as what to write. Pickles begin so, of protocol 2 or later.
fn is_snapshot(path: &Path) -> bool {
    let mut begin = [0; 2];
    let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
    let read = || File::open(path)?.read_exact(&mut begin);
    is_file && { read }().is_ok() && begin[0] == 0x80 && (2..=5).contains(&begin[1])
}

fn explain(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("{} cannot be written: {error}", path.display()));
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match error.kind() {
        io::ErrorKind::NotFound if !folder.exists() => {
            failure.next(format!("make the folder {}", folder.display()))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            failure.next("make room, or name a file elsewhere with -o")
        }
        _ if path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir() => {
            failure.next("name a file in that folder with -o")
        }
        _ => failure.next("name a file elsewhere with -o"),
    }
}

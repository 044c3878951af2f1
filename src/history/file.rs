//! A file that is whole or is not there: written under a temporary name in the same directory, then
//! renamed. A reader never sees half of it, and a process that is killed while it writes leaves the
//! file of the last time as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What makes the temporary name that of nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    pub process_id: u32,
    /// Counts the files of this process: two threads may write the same one.
    pub sequence: u64,
}

/// Writes what `write` writes, and answers how many bytes that were. An existing file is replaced.
/// After an error there is no new file, and no temporary one; the error names the path.
///
/// Directories are not made: a path that is not there is more often a mistake than a wish. What is
/// not a file, `/dev/null` say, is not replaced by one.
pub fn write_whole(
    path: &Path,
    writer: Writer,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<u64> {
    check_target(path)?;
    let temporary = Temporary(temporary_path(path, writer)?);
    let bytes = write_temporary(&temporary.0, write).map_err(|error| about(path, &error))?;
    fs::rename(&temporary.0, path).map_err(|error| about(path, &error))?;
    // What it was the name of has its real name now.
    std::mem::forget(temporary);
    Ok(bytes)
}

/// Removes the file, unless it was forgotten: after an error, and after a panic of `write`.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may not be there: opening it may be what failed.
        let _ = fs::remove_file(&self.0);
    }
}

fn check_target(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|target| !target.is_file()) {
        let what = format!("{}: is there, and is not a file", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => return Ok(()),
    };
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => {
            let what = format!("{}: is not a directory", directory.display());
            Err(io::Error::new(ErrorKind::NotADirectory, what))
        }
        Err(error) => {
            let what = format!("directory {}: {error}", directory.display());
            Err(io::Error::new(error.kind(), what))
        }
    }
}

/// Hidden, and recognisable for whoever finds one after a crash.
fn temporary_path(path: &Path, writer: Writer) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        let what = format!("{}: is not the name of a file", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    };
    let name = name.to_string_lossy();
    let name = &name[..name.floor_char_boundary(NAME_PART_BYTES_MAX)];
    let Writer { process_id, sequence } = writer;
    Ok(path.with_file_name(format!(".{name}.{process_id}.{sequence}.part")))
}

/// File systems allow 255 bytes for a name.
const NAME_PART_BYTES_MAX: usize = 200;

fn write_temporary(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<u64> {
    let file = match create(path) {
        // Of a process with our id that was killed: in containers ids come again at once.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create(path)?
        }
        result => result?,
    };
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut output)?;
    output.flush()?;
    let file = output.into_inner().map_err(|error| error.into_error())?;
    Ok(file.metadata()?.len())
}

const BUFFER_BYTES: usize = 1 << 17;

/// Never opens what is there already: it could be a link to something else.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

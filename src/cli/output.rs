//! Writes the command's files. A file is complete or absent, never replaces a snapshot, and is
//! never written through a symbolic link. Another user of the folder could prepare such a link and
//! have root overwrite its target. A link is refused rather than replaced, because the user may
//! have meant either.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::commands::Result;
use crate::failure::Failure;
use crate::kernel::RemovedOnSignal;
use crate::progress::Progress;

/// Name that stands for stdout, as in other commands.
pub(crate) const STDOUT: &str = "-";

/// Calls `write` with a file of this name, or with stdout. The file is written next to its
/// destination and replaces it when complete.
pub(crate) fn write(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    if path.as_os_str() == STDOUT {
        return to_stdout(write);
    }
    check(path)?;
    let written = match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => into(path, write),
        there => beside(path, there.ok(), write),
    };
    written.map_err(|error| explain(path, &error))
}

/// Checks that a file of this name may be written: it is neither a snapshot nor a link to a file.
pub(crate) fn check(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink()) {
        if fs::metadata(path).is_ok_and(|target| has_no_content(&target)) {
            return Ok(());
        }
        let (name, target) = (path.display(), fs::read_link(path).unwrap_or_default());
        let target = target.display();
        let what =
            format!("{name} is a symbolic link to {target}: cannot overwrite the target of a link");
        return Err(Failure::new(what).next("name the file itself with -o, or remove the link"));
    }
    if is_snapshot(path) {
        let what = format!("cannot write to {}: it is an input snapshot", path.display());
        return Err(Failure::new(what).next("name the output file with -o"));
    }
    Ok(())
}

/// Writes a file like `write`, but to the first of these names that does not exist. Returns that
/// name.
pub(crate) fn write_new(
    mut names: impl Iterator<Item = PathBuf>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<PathBuf> {
    let mut path = names.next().unwrap_or_default();
    let part = Part::make(&path, None, write).map_err(|error| explain(&path, &error))?;
    loop {
        // Unlike a rename, a hard link never replaces an existing file.
        let done = fs::hard_link(&part.path, &path).or_else(|error| {
            let is_free = fs::symlink_metadata(&path).is_err();
            let no_links = error.kind() != io::ErrorKind::AlreadyExists && is_free;
            if no_links { fs::rename(&part.path, &path) } else { Err(error) }
        });
        match done {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(explain(&path, &error)),
        }
        path = names.next().ok_or_else(|| already_there(&path))?;
    }
}

pub(crate) fn already_there(path: &Path) -> Failure {
    Failure::new(format!("{} already exists", path.display()))
        .next("replace it with --force, or name another file with -o")
}

pub(crate) fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        // The error comes from the caller, not from the system.
        Err(error) if error.get_ref().is_some() => {
            Err(Failure::new(format!("stdout is incomplete: {error}")))
        }
        Err(error) => Err(Failure::new(format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn to(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let progress = Progress::waiting("writing");
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, Watched { file, progress });
    write(&mut out).and_then(|()| out.flush())
}

const BUFFER_BYTES: usize = 64 << 10;

/// A file being written, with a progress display if writing takes long.
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

/// Returns whether the file is a pipe, terminal or the like, so that nothing could be lost.
fn has_no_content(about: &Metadata) -> bool {
    let kind = about.file_type();
    kind.is_fifo() || kind.is_char_device() || kind.is_socket()
}

/// Writes into a pipe or a device, even through a link such as `/dev/stdout`. Whatever has this
/// name when it is opened, a file is neither created nor truncated.
fn into(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    if !has_no_content(&file.metadata()?) {
        return Err(io::Error::other("another file has replaced it"));
    }
    to(file, write)
}

fn beside(
    path: &Path,
    there: Option<Metadata>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let closed = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    };
    match Part::create(path, there.as_ref()) {
        // A file may be writable in a folder that is not.
        Err(error) if there.is_some() && closed(&error) => {
            let mut options = OpenOptions::new();
            let file = options.write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
            if !file.metadata()?.is_file() {
                return Err(error);
            }
            file.set_len(0)?;
            to(file, write)
        }
        created => {
            let (part, file) = created?;
            to(file, write)?;
            fs::rename(&part.path, path)
        }
    }
}

/// A file that is written under an unpredictable name and removed when this value is dropped. Once
/// it has its final name, there is nothing left to remove.
struct Part {
    path: PathBuf,
    /// Removes the file if a signal ends this process.
    _guard: RemovedOnSignal,
}

impl Part {
    fn make(
        of: &Path,
        there: Option<&Metadata>,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<Part> {
        let (part, file) = Part::create(of, there)?;
        to(file, write)?;
        Ok(part)
    }

    /// Creates the file with the permissions of the file it replaces.
    fn create(of: &Path, there: Option<&Metadata>) -> io::Result<(Part, File)> {
        let name = of.file_name().ok_or(io::ErrorKind::IsADirectory)?.as_bytes();
        let mut hidden = b".".to_vec();
        hidden.extend_from_slice(&name[..name.len().min(NAME_BYTES_MAX)]);
        hidden.extend_from_slice(format!(".{:016x}.part", random()).as_bytes());
        let path = of.with_file_name(std::ffi::OsStr::from_bytes(&hidden));
        let guard = RemovedOnSignal::new(&path)?;
        let mut options = OpenOptions::new();
        // O_EXCL: opens neither an existing file nor the target of a link.
        let file = options.write(true).create_new(true).mode(0o666).open(&path)?;
        let part = Part { path, _guard: guard };
        if let Some(there) = there {
            let mine = file.metadata()?;
            let old = there.mode() & 0o777;
            // If the old file has another owner, its permissions may only restrict those of the new
            // one.
            let mode = if there.uid() == mine.uid() { old } else { old & mine.mode() };
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok((part, file))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // it may have its final name by now
    }
}

/// File systems allow 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// Returns a random number from the operating system, by way of the random seed of hash tables.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns whether the file is a snapshot: `report -o *.pickle` would name the first snapshot as
/// output. Pickles of protocol 2 or later begin with these bytes.
fn is_snapshot(path: &Path) -> bool {
    let mut begin = [0; 2];
    let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
    let read = || File::open(path)?.read_exact(&mut begin);
    is_file && { read }().is_ok() && begin[0] == 0x80 && (2..=5).contains(&begin[1])
}

fn explain(path: &Path, error: &io::Error) -> Failure {
    // The error comes from the caller, not from the system.
    if error.get_ref().is_some() {
        return Failure::new(format!("did not write {}: {error}", path.display()));
    }
    let failure = Failure::new(format!("cannot write {}: {error}", path.display()));
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match error.kind() {
        io::ErrorKind::NotFound if !folder.exists() => {
            failure.next(format!("create the folder {}", folder.display()))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            failure.next("free some space, or name a file elsewhere with -o")
        }
        _ if path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir() => {
            failure.next("name a file in that folder with -o")
        }
        _ => failure.next("name a file elsewhere with -o"),
    }
}

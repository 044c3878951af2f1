//! Opens a file that another user may have made.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cachealloc_history::file::OwnFile;

const ROOT: u32 = 0;

/// Users whose files may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Makers {
    Anyone,
    /// Root and the user of this process.
    Trusted,
    /// A given user in addition to the trusted ones.
    TrustedAnd(u32),
}

impl Makers {
    fn include(self, about: &Metadata) -> bool {
        match self {
            Makers::Anyone => true,
            Makers::Trusted => is_trusted(about),
            Makers::TrustedAnd(user) => about.uid() == user || is_trusted(about),
        }
    }
}

/// Whether root or the user of this process owns the file, and it is not writable for all.
pub fn is_trusted(about: &Metadata) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o002;
    let is_owned = about.uid() == ROOT || Some(about.uid()) == user();
    is_owned && about.mode() & WRITABLE_BY_OTHERS == 0
}

/// Returns the user of this process: the owner of its folder in `/proc`. If the process may not be
/// inspected, root owns that folder, and no other user is trusted.
fn user() -> Option<u32> {
    std::fs::metadata(own_proc()).ok().map(|about| about.uid())
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Read,
    /// For reading, if the path is not a link.
    ReadUnlinked,
    /// For reading and writing, if the path is not a link.
    WriteUnlinked,
}

/// Opens a regular file for reading, if one of these users has made it.
pub fn open(path: &Path, makers: Makers) -> io::Result<OwnFile> {
    open_where(path, Way::Read, |about| makers.include(about))
}

/// Opens a regular file, if its metadata is acceptable. Opening it neither waits nor has an effect,
/// unlike a plain open of a FIFO, a device or a leased file.
pub fn open_where(
    path: &Path,
    way: Way,
    will_do: impl FnOnce(&Metadata) -> bool,
) -> io::Result<OwnFile> {
    let no_link = if way == Way::Read { 0 } else { libc::O_NOFOLLOW };
    // A descriptor that only denotes the file and has no effect on it.
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH | no_link).open(path)?;
    let place = OwnFile::new(place)?;
    let about = place.still()?.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    if !will_do(&about) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "another user's file"));
    }
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(way == Way::WriteUnlinked)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    // Opens the very file that was examined, or the path again if there is no `/proc`.
    let by_number = format!("{}/fd/{}", own_proc(), place.still()?.as_raw_fd());
    let file = match options.open(by_number) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | no_link).open(path)
        }
        opened => opened,
    }?;
    let file = OwnFile::new(file)?;
    let opened = file.still()?.metadata()?;
    match (opened.dev(), opened.ino()) == (about.dev(), about.ino()) {
        true => Ok(file),
        false => Err(io::Error::other("another file has taken its name")),
    }
}

/// Returns the folder in `/proc` of the calling thread. The folder of the process is useless once
/// its first thread has ended, and lists the descriptors of that thread, which may not be those of
/// this one.
pub fn own_proc() -> &'static str {
    /// Exists since Linux 3.17.
    const OF_THREAD: &str = "/proc/thread-self";
    if Path::new(OF_THREAD).exists() { OF_THREAD } else { "/proc/self" }
}

/// Returns the path of the program's file.
pub fn own_program() -> PathBuf {
    std::fs::read_link(Path::new(own_proc()).join("exe")).unwrap_or_default()
}

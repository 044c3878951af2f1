//! The folder of shared memory. Each process under the library has files there: its statistics
//! (`cachealloc_statistics::page`) and its history (`cachealloc_history::persistent`).
//!
//! A name consists of the user, the process's namespace and its number there, with a `-` between
//! them, perhaps its start, and if that name is taken, a `.` and anything. A name is only a hint:
//! any user may make a file of any name there, or a link. The head of a file identifies the owner,
//! if the file belongs to that user.

use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cachealloc_history::file::new_above_standard;
use cachealloc_statistics::page::Owner;

pub const FOLDER: &str = "/dev/shm";

/// Returns the name of a file of this user and process.
pub fn name(begin: &str, user: u32, owner: &Owner) -> String {
    let Owner { process_id, namespace, .. } = owner;
    format!("{begin}{user}-{namespace}-{process_id}")
}

/// Returns the owner according to a name. The start is 0 if the name does not contain it. `begin`
/// may begin names of other files as well: they have no user there.
pub fn owner_of_name(begin: &str, name: &str) -> Option<Owner> {
    let rest = name.strip_prefix(begin)?;
    let mut numbers = rest.split('.').next()?.split('-');
    let _user: u32 = numbers.next()?.parse().ok()?;
    let namespace = numbers.next()?.parse().ok()?;
    let process_id = numbers.next()?.parse().ok()?;
    let start = numbers.next().map_or(Some(0), |start| start.parse().ok())?;
    Some(Owner { process_id, start, namespace })
}

/// Creates a file with these rights. If there is a file of this name, another user may have put it
/// there to block this one: then the name gets a random end.
pub fn create(name: &str, mode: u32) -> io::Result<(PathBuf, File)> {
    let create = |path: &Path| {
        let mut options = OpenOptions::new();
        new_above_standard(options.read(true).write(true).create_new(true).mode(mode).open(path)?)
    };
    let path = Path::new(FOLDER).join(name);
    create(&path).map(|file| (path, file)).or_else(|_| {
        let path = Path::new(FOLDER).join(format!("{name}.{:016x}", random()));
        create(&path).map(|file| (path, file))
    })
}

/// Returns all regular files whose names begin so.
pub fn files(begin: String) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let is_one = move |entry: &fs::DirEntry| {
        entry.file_name().as_encoded_bytes().starts_with(begin.as_bytes())
    };
    let paths = entries.filter(is_one).map(|entry| entry.path());
    // `DirEntry::metadata` calls `fstatat64`, which older C libraries do not have.
    let files =
        paths.filter_map(|path| fs::symlink_metadata(&path).ok().map(|about| (path, about)));
    files.filter(|(_, about)| about.is_file())
}

/// Returns the files of this user.
pub fn files_of(user: u32, begin: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let files = files(format!("{begin}{user}-")).filter(move |(_, about)| about.uid() == user);
    files.map(|(path, _)| path)
}

/// Returns a random number from the operating system's randomness.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

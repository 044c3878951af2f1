//! Information about processes from `/proc`: which one made a file of the library, and whether it
//! is alive.
//!
//! Note [Judged]. Each process keeps its files in `/dev/shm` mapped while it is alive and the same
//! program, and no forked child has them. So a process that maps a file owns it, whatever else
//! differs. The main thread may have ended: the process then looks dead until the other threads are
//! examined. The start is another number in each time namespace. Anything invisible is unknown,
//! and nothing is removed for it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cachealloc_statistics::page::{NAME_BEGIN, Owner, start_of};

/// State of the process that made a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Gone,
    /// It runs, and owns the file.
    Lives,
    /// It runs, but is another program now, or another process with the same number.
    OtherProgram,
    /// It cannot be seen from here.
    Unknown,
}

/// Reads a file of `/proc`, whose size is not known before: most take one page.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    const PAGE_BYTES: usize = 4096;
    let mut content = Vec::with_capacity(PAGE_BYTES);
    File::open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the identity of a process, from its folder in `/proc` or that of the calling thread,
/// with the number that it has in its own namespace. A thread may have begun later, so the start is
/// that of the process. The process folder has it even after the main thread has ended.
pub fn owner_at(folder: &Path) -> io::Result<Owner> {
    let of_process =
        if folder.ends_with("thread-self") { folder.with_file_name("self") } else { folder.into() };
    let stat = read(&of_process.join("stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    let status = read(&folder.join("status"))?;
    let numbers = numbers_of(&String::from_utf8_lossy(&status));
    let shown = || stat.split(' ').next().and_then(|number| number.parse().ok());
    let number = numbers.last().copied().or_else(shown);
    let (process_id, start) =
        number.zip(start_of(&stat)).ok_or_else(|| io::Error::other("/proc is not as expected"))?;
    Ok(Owner { process_id, start, namespace: fs::metadata(folder.join("ns/pid"))?.ino() })
}

/// Returns this process, if `/proc` belongs to its own namespace. Otherwise the numbers there
/// differ.
pub fn own() -> io::Result<Owner> {
    // The folder of the process may no longer have this information.
    let folder = Path::new(super::own_proc());
    let of_thread = owner_at(folder)?;
    let status = read(&folder.join("status"))?;
    let status = String::from_utf8_lossy(&status);
    let has_one_number = numbers_of(&status).len() <= 1;
    let shown = field(&status, "Tgid:").and_then(|number| number.parse().ok());
    if !has_one_number || shown != Some(std::process::id()) {
        return Err(io::Error::other("/proc belongs to another namespace"));
    }
    Ok(Owner { process_id: std::process::id(), ..of_thread })
}

/// Returns the folder of a thread that has not ended, of the process with this folder: its first
/// thread unless that has ended.
pub fn living_thread(folder: &Path) -> Option<PathBuf> {
    if is_alive(folder) {
        return Some(folder.to_path_buf());
    }
    let threads = fs::read_dir(folder.join("task")).ok()?.flatten();
    threads.map(|thread| thread.path()).find(|thread| is_alive(thread))
}

/// Whether a thread of the process with this folder runs, waits for a processor, or is in a call of
/// the kernel that cannot be interrupted. A process that is stopped or frozen has no such thread.
pub fn is_at_work(folder: &Path) -> bool {
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).any(|thread| matches!(state_of(&thread), Some('R' | 'D')))
}

fn is_alive(folder: &Path) -> bool {
    state_of(folder).is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

/// Returns the letter for the state of a thread.
fn state_of(folder: &Path) -> Option<char> {
    let stat = read(&folder.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
}

/// Whether a process maps a file of the library, from the folder of one of its threads. Returns
/// `None` if that cannot be seen from here, or the process is about to end.
fn maps(thread: &Path, path: &Path, inode: u64) -> Option<bool> {
    let maps = read(&thread.join("maps")).ok().filter(|maps| !maps.is_empty())?;
    let maps = String::from_utf8_lossy(&maps);
    let (inode, name) = (inode.to_string(), path.file_name()?.to_string_lossy().into_owned());
    let is_it = |line: &str| {
        // Some file systems show another number here.
        line.split_whitespace().nth(4) == Some(&inode) || line.ends_with(&format!("/{name}"))
    };
    Some(maps.lines().filter(|line| line.contains(NAME_BEGIN)).any(is_it))
}

/// Returns what has become of the process that made a file. `folder` is the one of the process with
/// its number. `exists` tells whether there is such a process, for the case that no folder can be
/// seen.
pub fn fate(
    folder: &Path,
    (path, inode): (&Path, u64),
    owner: &Owner,
    exists: impl FnOnce() -> bool,
) -> Fate {
    if !folder.exists() {
        return if exists() { Fate::Unknown } else { Fate::Gone };
    }
    let Some(thread) = living_thread(folder) else {
        // The process may have ended meanwhile.
        return if folder.exists() || !exists() { Fate::Gone } else { Fate::Unknown };
    };
    let has_start = || owner_at(folder).is_ok_and(|present| present.start == owner.start);
    match maps(&thread, path, inode) {
        Some(true) => Fate::Lives,
        Some(false) => Fate::OtherProgram,
        None if has_start() => Fate::Lives,
        None => Fate::Unknown,
    }
}

/// Returns the numbers of a process, in the observing namespace and in each nested one. Old kernels
/// report none.
fn numbers_of(status: &str) -> Vec<u32> {
    let numbers = field(status, "NSpid:").unwrap_or_default();
    numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

//! What `/proc` says of processes: which one made a file of ours, and whether that lives.
//!
//! Note [Judged]. Each process has its files in `/dev/shm` mapped for as long as it lives and is the same program, and
//! no forked child has them. So a process that maps a file owns it, whatever else differs: the main thread may have
//! ended, and then the process looks like one that is dead until the other threads are asked; its start is another
//! number for each time namespace. What cannot be seen is not known, and nothing is removed for it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cachealloc_statistics::page::{NAME_BEGIN, Owner, start_of};

/// What has become of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Gone,
    /// It runs, and the file is its own.
    Lives,
    /// It runs, and is another program now, or another process of the same number.
    OtherProgram,
    /// It cannot be seen from here.
    Unknown,
}

/// The identity of a process, from its folder in `/proc` or that of the calling thread: with the number that it has for
/// itself. A thread may have begun later, so the start is that of the process, which tells it when its main thread has ended, too.
pub fn owner_at(folder: &Path) -> io::Result<Owner> {
    let of_process =
        if folder.ends_with("thread-self") { folder.with_file_name("self") } else { folder.into() };
    let stat = fs::read(of_process.join("stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    let numbers = numbers_of(&fs::read_to_string(folder.join("status"))?);
    let shown = || stat.split(' ').next().and_then(|number| number.parse().ok());
    let number = numbers.last().copied().or_else(shown);
    let (process_id, start) =
        number.zip(start_of(&stat)).ok_or_else(|| io::Error::other("/proc is not as expected"))?;
    Ok(Owner { process_id, start, namespace: fs::metadata(folder.join("ns/pid"))?.ino() })
}

/// This process, where `/proc` is that of its own namespace: else its numbers are others.
pub fn own() -> io::Result<Owner> {
    // That of the process may not tell any more.
    let folder = Path::new(super::own_proc());
    let of_thread = owner_at(folder)?;
    let status = fs::read_to_string(folder.join("status"))?;
    let has_one_number = numbers_of(&status).len() <= 1;
    let shown = field(&status, "Tgid:").and_then(|number| number.parse().ok());
    if !has_one_number || shown != Some(std::process::id()) {
        return Err(io::Error::other("/proc is of another namespace"));
    }
    Ok(Owner { process_id: std::process::id(), ..of_thread })
}

/// The folder of a thread that has not ended, of the process with this folder: the first one of the process unless
/// that has ended.
pub fn living_thread(folder: &Path) -> Option<PathBuf> {
    if is_alive(folder) {
        return Some(folder.to_path_buf());
    }
    let threads = fs::read_dir(folder.join("task")).ok()?.flatten();
    threads.map(|thread| thread.path()).find(|thread| is_alive(thread))
}

fn is_alive(folder: &Path) -> bool {
    let stat = fs::read(folder.join("stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

/// Whether a process maps a file of ours. None: that cannot be seen from here, or it is about to end.
pub fn maps(folder: &Path, path: &Path, inode: u64) -> Option<bool> {
    let maps =
        fs::read(living_thread(folder)?.join("maps")).ok().filter(|maps| !maps.is_empty())?;
    let maps = String::from_utf8_lossy(&maps);
    let (inode, name) = (inode.to_string(), path.file_name()?.to_string_lossy().into_owned());
    let is_it = |line: &str| {
        // Some file systems show another number here.
        line.split_whitespace().nth(4) == Some(&inode) || line.ends_with(&format!("/{name}"))
    };
    Some(maps.lines().filter(|line| line.contains(NAME_BEGIN)).any(is_it))
}

/// What has become of the process that made a file. `folder`: of the process with its number; `exists`: whether
/// there is one, where no folder can be seen.
pub fn fate(
    folder: &Path,
    (path, inode): (&Path, u64),
    owner: &Owner,
    exists: impl FnOnce() -> bool,
) -> Fate {
    if !folder.exists() {
        return if exists() { Fate::Unknown } else { Fate::Gone };
    }
    if living_thread(folder).is_none() {
        // It may have gone meanwhile.
        return if folder.exists() || !exists() { Fate::Gone } else { Fate::Unknown };
    }
    let has_start = || owner_at(folder).is_ok_and(|present| present.start == owner.start);
    match maps(folder, path, inode) {
        Some(true) => Fate::Lives,
        Some(false) => Fate::OtherProgram,
        None if has_start() => Fate::Lives,
        None => Fate::Unknown,
    }
}

/// The numbers of a process, in the namespace that is looked from and in each inside that. Old kernels say none.
fn numbers_of(status: &str) -> Vec<u32> {
    let numbers = field(status, "NSpid:").unwrap_or_default();
    numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

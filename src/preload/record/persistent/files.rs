//! The files in `/dev/shm`: their creation, the space for them, and the removal of those left by
//! dead processes, which are useful for a while but must not pile up.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_foreign::{Way, open_where, shared_memory};
use cachealloc_history::persistent::layout::*;
use cachealloc_statistics::page;

use crate::clock::{epoch_offset_ns, now_ns};
use crate::identity;
use crate::identity::Fate;

/// The kernel's number of a file system in memory.
const TMPFS: i64 = 0x0102_1994;
/// Limits of the number and the age of files left by dead processes.
const LEFT_MAX: usize = 64;
const LEFT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the total and the free bytes of the folder's file system.
pub(super) fn space() -> io::Result<(u64, u64)> {
    let path = CString::new(FOLDER)?;
    // SAFETY: a C string, and a place for the answer.
    let (code, about) = unsafe {
        let mut about: libc::statfs = core::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut about), about)
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast)] // the types differ between machines
    if about.f_type as i64 != TMPFS {
        return Err(io::Error::other("it is not a file system in memory"));
    }
    let bytes = about.f_bsize as u64;
    Ok((about.f_blocks * bytes, about.f_bavail * bytes))
}

/// Returns the limit of a resource of this process.
pub(super) fn limit(of: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    let code = unsafe { libc::getrlimit(of, &mut limit) };
    if code == 0 { limit.rlim_cur } else { 0 }
}

/// A file left by a dead process of this user.
struct LeftFile {
    path: PathBuf,
    seen_us: u64,
    bytes: u64,
}

/// Removes useless files: the file of this very process before `exec`, and old leftovers.
pub(super) fn remove_old(user: u32, own: &page::Owner, bytes_max: u64) {
    let judge = identity::own_to_judge();
    let mut left = Vec::new();
    for path in shared_memory::files_of(user, NAME_BEGIN) {
        let Some((owner, seen_us, inode, bytes)) = about(&path, user) else {
            remove_unfinished(&path, judge.as_ref());
            continue;
        };
        if owner == *own {
            let _ = fs::remove_file(path);
            continue;
        }
        let fate = identity::fate_of(&path, inode, &owner, judge.as_ref());
        if matches!(fate, Fate::Gone | Fate::OtherProgram) {
            left.push(LeftFile { path, seen_us, bytes });
        }
    }
    left.sort_by_key(|left| core::cmp::Reverse(left.seen_us));
    let now_us = now_ns().wrapping_add(epoch_offset_ns()) / 1000;
    let mut bytes = 0;
    for (number, LeftFile { path, seen_us, bytes: more }) in left.into_iter().enumerate() {
        bytes += more;
        let is_old = Duration::from_micros(now_us.saturating_sub(seen_us)) > LEFT_FOR;
        if is_old || number >= LEFT_MAX || bytes > bytes_max {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a file without contents, if the process in its name is gone: it was killed just then, or
/// could not remove the file itself.
fn remove_unfinished(path: &Path, judge: Option<&page::Owner>) {
    let is_empty = || {
        let file = open_where(path, Way::ReadUnlinked, |_| true).ok()?;
        let mut magic = [0; 8];
        let read = file.still().ok()?.read_at(&mut magic, 0).ok()?;
        (read == 0 || magic == [0; 8]).then_some(file.still().ok()?.metadata().ok()?.ino())
    };
    let owner = || shared_memory::owner_of_name(NAME_BEGIN, path.file_name()?.to_str()?);
    if let (Some(inode), Some(owner)) = (is_empty(), owner())
        && identity::fate_of(path, inode, &owner, judge) == Fate::Gone
    {
        let _ = fs::remove_file(path);
    }
}

/// Returns the file's owner, the time when its process was last seen, its inode, and its size.
fn about(path: &Path, user: u32) -> Option<(page::Owner, u64, u64, u64)> {
    let file = open_where(path, Way::ReadUnlinked, |about| about.uid() == user).ok()?;
    let file = file.still().ok()?;
    let about = file.metadata().ok()?;
    let mut bytes = [0; HEAD_WORDS * 8];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let word = |word: usize| {
        let bytes = bytes.as_chunks::<8>().0[word];
        u64::from_ne_bytes(bytes)
    };
    if word(WORD_MAGIC) != MAGIC {
        return None;
    }
    let owner = page::Owner {
        process_id: word(WORD_PROCESS) as u32,
        start: word(WORD_START),
        namespace: word(WORD_NAMESPACE),
    };
    Some((owner, word(WORD_SEEN_US), about.ino(), about.blocks() * 512))
}

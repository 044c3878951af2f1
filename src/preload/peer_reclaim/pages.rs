//! A peer process, reached through its file (`cachealloc_statistics::page`).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cachealloc_foreign::{Way, open_where, shared_memory};
use cachealloc_history::file::above_standard;
use cachealloc_statistics::control::{ControlCommand, GpuId};
use cachealloc_statistics::page::{
    GRANTS_OFFSET, HEAD_BYTES, Head, NAME_BEGIN, Offer, Owner, Waiter,
};
use cachealloc_statistics::sender::{self, Sent, Words};

use crate::identity;
use crate::identity::Fate;
use crate::peer_reclaim::patience::Patience;
use crate::process::library_thread;
use crate::statistics::live;

/// Longest wait for an answer of a process that does not work.
const ANSWER_IDLE_MAX: Duration = Duration::from_millis(50);
/// Longest wait for a process that has begun to release memory, and does not work.
const RELEASE_IDLE_MAX: Duration = Duration::from_secs(1);
/// Interval at which the process is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of files to examine.
const OTHERS_MAX: usize = 1000;

/// A peer process. Its file is open only while it is used: there may be many, and the program needs
/// descriptors too.
pub(super) struct Peer {
    path: PathBuf,
    head: Mapped,
    /// Its number, if it can be seen from here.
    process: Option<u32>,
}

/// The mapped head of the file, accessed only by the kernel, because the file may be truncated.
struct Mapped(*mut u8);

/// A process that was asked to release memory.
pub(super) struct Given<'a> {
    peer: &'a Peer,
    /// Number of grants before that.
    grants: u32,
}

impl Peer {
    /// Returns the processes that seem to live. Those of another namespace cannot be checked; one
    /// that has ended does not respond.
    pub(super) fn all() -> Vec<Peer> {
        let Ok(own) = identity::own() else { return Vec::new() };
        let judge = identity::own_to_judge();
        let of_user = shared_memory::files_of(identity::user(), NAME_BEGIN).take(OTHERS_MAX);
        of_user.filter_map(|path| Peer::at(path, &own, judge.as_ref())).collect()
    }

    fn at(path: PathBuf, own: &Owner, judge: Option<&Owner>) -> Option<Peer> {
        let file = open(&path)?;
        let owner = sender::head(&file).ok()??.owner;
        let is_own = owner.process_id == own.process_id && owner.namespace == own.namespace;
        let inode = file.metadata().ok()?.ino();
        let fate = || identity::fate_of(&path, inode, &owner, judge);
        if is_own || matches!(fate(), Fate::Gone | Fate::OtherProgram) {
            return None;
        }
        let head = Mapped(live::map(&file).ok()?);
        let is_seen = judge.is_some_and(|judge| judge.namespace == owner.namespace);
        Some(Peer { path, head, process: is_seen.then_some(owner.process_id) })
    }

    fn head(&self) -> Option<Head> {
        sender::head(&open(&self.path)?).ok()?
    }

    /// Returns the first of its requests that wait for memory of this GPU.
    pub(super) fn waiter(&self, gpu: GpuId) -> Option<Waiter> {
        let waiters = self.head()?.waiters;
        waiters.into_iter().find(|waiter| waiter.gpu == gpu && waiter.looked_ns != 0)
    }

    /// Asks how much it could release. Returns `None` if it does not respond.
    pub(super) fn offers(&self, gpu: GpuId, patience: &Patience) -> Option<Offer> {
        self.ask(&ControlCommand::Offer { gpu }, patience)?.map(|head| head.offered)
    }

    /// Asks it to release this much. Returns `None` if it does not accept.
    pub(super) fn is_to_give(
        &self,
        gpu: GpuId,
        mebibytes: u32,
        patience: &Patience,
    ) -> Option<Given<'_>> {
        let grants = self.head()?.grants;
        self.ask(&ControlCommand::Give { gpu, mebibytes }, patience)?;
        Some(Given { peer: self, grants })
    }

    /// Returns its head once it has done what the command says, or `None` if it does not.
    fn ask(&self, command: &ControlCommand, patience: &Patience) -> Option<Option<Head>> {
        let waiting = patience.begin(self.process, ANSWER_IDLE_MAX);
        match sender::send(&open(&self.path)?, &self.head, &waiting, command).ok()? {
            (Sent::Done, head) => Some(head),
            _ => {
                waiting.give_up();
                None
            }
        }
    }
}

/// Opens a file that belongs to the user: another user may have created one with this name.
fn open(path: &Path) -> Option<File> {
    let user = identity::user();
    let file = open_where(path, Way::WriteUnlinked, |about| about.uid() == user).ok()?;
    above_standard(file.into_file()).ok()
}

impl Given<'_> {
    /// Waits until the process has released what it could.
    pub(super) fn wait(&self, patience: &Patience) {
        let waiting = patience.begin(self.peer.process, RELEASE_IDLE_MAX);
        let is_made = || self.peer.head().is_none_or(|head| head.grants != self.grants);
        while !is_made() {
            let left = waiting.left();
            if left.is_zero() {
                return waiting.give_up();
            }
            self.peer.head.sleep(GRANTS_OFFSET, self.grants, left.min(LOOK_EVERY));
        }
    }
}

impl Words for Mapped {
    fn wake(&self, offset: usize) -> io::Result<()> {
        let word = self.0.wrapping_add(offset);
        if live::add_1(word) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn sleep(&self, offset: usize, value: u32, longest: Duration) {
        let (word, time) = (self.0.wrapping_add(offset), library_thread::timespec(longest));
        // SAFETY: the kernel compares the word and sleeps, or returns an error if it cannot read
        // it.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, &time) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the library's mapping, to which nothing refers any longer.
        unsafe { libc::munmap(self.0.cast(), HEAD_BYTES) };
    }
}

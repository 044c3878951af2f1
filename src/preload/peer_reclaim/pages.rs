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
use cachealloc_statistics::sender::{self, Receiver, Sent, Words};

use crate::clock::Instant;
use crate::identity;
use crate::identity::Fate;
use crate::process::library_thread;
use crate::statistics::live;

/// Longest wait for an answer. A process may be stopped, or write a snapshot.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(50);
/// Maximum number of files to examine.
const OTHERS_MAX: usize = 1000;

/// A peer process. Its file is open only while it is used: there may be many, and the program needs
/// descriptors too.
pub(super) struct Peer {
    path: PathBuf,
    head: Mapped,
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
        Some(Peer { path, head })
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
    pub(super) fn offers(&self, gpu: GpuId, left: &dyn Fn() -> Duration) -> Option<Offer> {
        let receiver = Patient { begun: Instant::now(), left };
        match sender::send(
            &open(&self.path)?,
            &self.head,
            &receiver,
            &ControlCommand::Offer { gpu },
        )
        .ok()?
        {
            (Sent::Done, Some(head)) => Some(head.offered),
            _ => None,
        }
    }

    /// Asks it to release this much. Returns `None` if it does not accept.
    pub(super) fn is_to_give(
        &self,
        gpu: GpuId,
        mebibytes: u32,
        left: &dyn Fn() -> Duration,
    ) -> Option<Given<'_>> {
        let receiver = Patient { begun: Instant::now(), left };
        let grants = self.head()?.grants;
        let order = ControlCommand::Give { gpu, mebibytes };
        match sender::send(&open(&self.path)?, &self.head, &receiver, &order).ok()? {
            (Sent::Done, _) => Some(Given { peer: self, grants }),
            _ => None,
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
    pub(super) fn wait(&self, left: &dyn Fn() -> Duration) {
        let is_made = || self.peer.head().is_none_or(|head| head.grants != self.grants);
        while !is_made() && !left().is_zero() {
            self.peer.head.sleep(GRANTS_OFFSET, self.grants, left());
        }
    }
}

struct Patient<'a> {
    begun: Instant,
    left: &'a dyn Fn() -> Duration,
}

impl Receiver for Patient<'_> {
    fn has_ended(&self) -> bool {
        false // the timeout is short
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn timeout(&self) -> Duration {
        ANSWER_WAIT_MAX.saturating_sub(self.begun.elapsed()).min((self.left)())
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

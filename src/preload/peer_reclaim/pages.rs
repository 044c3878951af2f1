//! Another process of the user's under the library, by its file (`cachealloc_statistics::page`).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cachealloc_foreign::{Way, open_where};
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

/// A process that is stopped, or writes a snapshot, is not waited for.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(50);
/// Files that are looked at.
const OTHERS_MAX: usize = 1000;

/// Its file is open only while it is used: there may be many, and the program needs descriptors of its own.
pub(super) struct Peer {
    path: PathBuf,
    head: Mapped,
}

/// The head of its file, for the kernel only: the file may be truncated.
struct Mapped(*mut u8);

/// What was ordered to be given.
pub(super) struct Given<'a> {
    peer: &'a Peer,
    /// Gifts before.
    grants: u32,
}

impl Peer {
    /// Those that seem to live. Processes of another namespace cannot be judged: one that is gone does not answer.
    pub(super) fn all() -> Vec<Peer> {
        let Ok(own) = identity::own() else { return Vec::new() };
        let judge = identity::own_to_judge();
        // SAFETY: asks the kernel for a number.
        let begin = format!("{NAME_BEGIN}{}-", unsafe { libc::geteuid() });
        let of_user = identity::own_files(live::FOLDER, &begin).take(OTHERS_MAX);
        of_user.filter_map(|it| Peer::at(it.path(), &own, judge.as_ref())).collect()
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

    /// The first of its requests that wait for memory of this GPU, if any does.
    pub(super) fn waiter(&self, gpu: GpuId) -> Option<Waiter> {
        let waiters = self.head()?.waiters;
        waiters.into_iter().find(|waiter| waiter.gpu == gpu && waiter.looked_ns != 0)
    }

    /// What it could give. None: it does not say.
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

    /// Orders it to give so much. None: it does not.
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

/// Only a file of the user's own: others may have put one of this name there.
fn open(path: &Path) -> Option<File> {
    // SAFETY: asks the kernel for a number.
    let user = unsafe { libc::geteuid() };
    let file = open_where(path, Way::WriteUnlinked, |about| about.uid() == user).ok()?;
    above_standard(file.into_file()).ok()
}

impl Given<'_> {
    /// Waits until the process has given what it could.
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
        false // patience ends soon
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
        // SAFETY: the kernel compares the word and sleeps; where it cannot read it, it says so.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, &time) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any longer.
        unsafe { libc::munmap(self.0.cast(), HEAD_BYTES) };
    }
}

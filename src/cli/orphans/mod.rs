//! Finds the histories that killed processes left, in the layout of
//! `cachealloc_history::persistent`: where they are, whose they are, and whether their process is
//! really gone.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cachealloc_foreign::process as judged;
use cachealloc_foreign::{Makers, open, shared_memory};
use cachealloc_history::persistent::layout::{
    HEAD_WORDS, MAGIC, NAME_BEGIN, WORD_MAGIC, WORD_NAMESPACE, WORD_PROCESS, WORD_SEEN_US,
    WORD_START,
};
use cachealloc_history::persistent::{self, Leftover, ReadAt};
use cachealloc_statistics::page::Owner;

use crate::processes::{self, OtherNamespaces, Process};

mod names;

pub(crate) use names::Names;

/// A history file that a process writes or has left.
pub(crate) struct OrphanedHistory {
    pub path: PathBuf,
    pub owner: Owner,
    /// When the process was last alive, to the second.
    pub seen: SystemTime,
    pub bytes: u64,
    file: File,
    inode: u64,
}

/// Fate of the process that made a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Gone,
    /// The process runs under this number in this namespace, and writes the file.
    Lives(Process),
    /// The process runs, but has executed another program.
    OtherProgram,
    /// The process belongs to a namespace that cannot be seen from here.
    Unknown,
}

impl OrphanedHistory {
    pub(crate) fn open(path: &Path) -> io::Result<OrphanedHistory> {
        let file = open(path, Makers::Anyone)?.into_file();
        let about = file.metadata()?;
        let mut head = [0; HEAD_WORDS * 8];
        Bytes(&file).read_at(0, &mut head)?;
        let word = |word: usize| u64::from_ne_bytes(head.as_chunks::<8>().0[word]);
        if word(WORD_MAGIC) != MAGIC {
            return Err(io::Error::other("it is not the history of a killed process"));
        }
        let owner = Owner {
            process_id: word(WORD_PROCESS) as u32,
            start: word(WORD_START),
            namespace: word(WORD_NAMESPACE),
        };
        let since = Duration::from_micros(word(WORD_SEEN_US));
        let seen = SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
        let (path, bytes) = (path.to_path_buf(), about.blocks() * 512);
        Ok(OrphanedHistory { path, owner, seen, bytes, file, inode: about.ino() })
    }

    /// Returns all histories that this user may have left, latest first; for root, those of all
    /// users.
    pub(crate) fn all() -> Vec<OrphanedHistory> {
        processes::allow_many_files();
        let user = nix::unistd::geteuid();
        let mut all = Vec::new();
        for (path, about) in shared_memory::files(NAME_BEGIN.into()) {
            if user.is_root() || about.uid() == user.as_raw() {
                all.extend(OrphanedHistory::open(&path));
            }
        }
        all.sort_by_key(|left| std::cmp::Reverse(left.seen));
        all
    }

    /// Pass the same `others` for all files.
    pub(crate) fn fate(&self, others: &OtherNamespaces) -> Fate {
        let process = processes::with_owner(&self.owner, others);
        match process {
            Some(process) => match process.fate_of((&self.path, self.inode), &self.owner) {
                judged::Fate::Gone => Fate::Gone,
                judged::Fate::Lives => Fate::Lives(process),
                judged::Fate::OtherProgram => self.of_another(process),
                judged::Fate::Unknown => Fate::Unknown,
            },
            None if processes::own().is_ok_and(|own| own.namespace == self.owner.namespace) => {
                Fate::Gone
            }
            None => Fate::Unknown,
        }
    }

    /// Returns the fate of a process that runs under this number without the file: after `exec`, or
    /// as another process.
    fn of_another(&self, process: Process) -> Fate {
        let is_same = process.owner().is_ok_and(|owner| owner.start == self.owner.start);
        if is_same { Fate::OtherProgram } else { Fate::Gone }
    }

    pub(crate) fn read(&self) -> Result<Leftover, persistent::Problem> {
        persistent::read(&Bytes(&self.file))
    }
}

struct Bytes<'a>(&'a File);

impl ReadAt for Bytes<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        self.0.metadata().map_or(0, |about| about.blocks() * 512)
    }
}

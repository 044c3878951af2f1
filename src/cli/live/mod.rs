//! The statistics of running programs: their files in `/dev/shm`, whose layout and protocol are
//! `cachealloc_core::report::page`. A process that does not answer is not waited for, and none is
//! ever stopped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use cachealloc_core::report::page::{
    ANSWERED_OFFSET, BELL_OFFSET, HEAD_BYTES, Head, NAME_BEGIN, Owner, REQUESTS_OFFSET,
    SITE_REQUESTS_OFFSET,
};

use crate::kernel::Page;
use crate::processes::{self, Process};

mod statistics;
mod why;

pub use statistics::{CallSite, Library, Statistics, Timed};
pub use why::{LIBRARY_NAME, explain};

const FOLDER: &str = "/dev/shm";
/// Longer texts are none of ours.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// What an answer says where somebody else's request took the call sites.
const NO_SITES: &str = "\"call_sites\": null";
const NOT_RECORDED: &str = "\"libraries\": null";
/// So often it is looked whether the process is still there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A process that runs under the library.
pub struct Live {
    pub process: Process,
    owner: Owner,
    file: File,
    page: Page,
}

/// What was asked of a process.
#[derive(Clone, Copy)]
pub struct Request(u32);

/// Why a process has no statistics for us.
#[derive(Debug)]
pub enum Problem {
    /// No file of it, or one of an earlier process.
    NoFile,
    /// A file of a library of another version.
    OtherLayout,
    /// A file that is not for us.
    Refused(io::Error),
    /// The process did not answer in time.
    Silent,
    /// The process ended.
    Ended,
    /// What it said is nothing that we understand.
    Garbled(String),
}

impl Live {
    /// The file of a process, whoever's it is.
    pub fn of(process: Process) -> Result<Live, Problem> {
        let (Ok(owner), Some(user)) = (process.owner(), process.user()) else {
            return Err(Problem::NoFile);
        };
        let path = Path::new(FOLDER).join(format!("{NAME_BEGIN}{user}-{}", process.0));
        let live = Live::open(&path, user)?;
        if live.owner == owner {
            return Ok(live);
        }
        if live.is_stale() {
            // Its owner's, and nobody is left who would miss it. Else the next program removes it.
            let _ = fs::remove_file(path);
        }
        Err(Problem::NoFile)
    }

    /// All processes of this user, by their numbers. What dead ones left is removed.
    pub fn all() -> Vec<Live> {
        let user = nix::unistd::geteuid().as_raw();
        let begin = format!("{NAME_BEGIN}{user}-");
        let own = processes::own().ok();
        let mut all = Vec::new();
        for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(&begin) {
                continue;
            }
            let Ok(live) = Live::open(&entry.path(), user) else { continue };
            if live.is_stale() {
                let _ = fs::remove_file(entry.path()); // somebody else may have done it
            } else if own.is_some_and(|own| own.namespace == live.owner.namespace) {
                all.push(live);
            }
        }
        all.sort_by_key(|live| live.process.0);
        all
    }

    /// Asks the process for its statistics, as JSON. `sites`: with call sites, where it records.
    pub fn ask(&self, sites: bool, patience: Duration) -> Result<String, Problem> {
        let deadline = Instant::now() + patience;
        loop {
            let text = self.answer(self.request(sites)?, deadline)?;
            let taken = sites && text.contains(NO_SITES) && !text.contains(NOT_RECORDED);
            if !taken || Instant::now() > deadline {
                return Ok(text);
            }
        }
    }

    /// Asks, and does not wait.
    pub fn request(&self, sites: bool) -> Result<Request, Problem> {
        if sites {
            self.page.ring(SITE_REQUESTS_OFFSET).map_err(Problem::Refused)?;
        }
        self.page.ring(REQUESTS_OFFSET).map_err(Problem::Refused)?;
        // Ours, or one that somebody else made a moment later: both are answered after ours was made.
        let number = self.head()?.requests;
        self.page.ring(BELL_OFFSET).map_err(Problem::Refused)?;
        Ok(Request(number))
    }

    /// Waits for the answer to a request; not for that of a process that is stopped, which has none.
    pub fn answer(&self, Request(number): Request, deadline: Instant) -> Result<String, Problem> {
        loop {
            let answered = self.head()?.answered;
            if answered.wrapping_sub(number) as i32 >= 0 {
                if let Some(text) = self.text()? {
                    return Ok(text);
                }
            } else {
                let left = deadline.saturating_duration_since(Instant::now());
                self.page.sleep(ANSWERED_OFFSET, answered, left.min(LOOK_EVERY));
            }
            if self.has_ended() {
                return Err(Problem::Ended);
            }
            let is_late = Instant::now() >= deadline || self.process.is_stopped();
            if is_late && self.head()?.answered == answered {
                return Err(Problem::Silent);
            }
        }
    }

    pub fn statistics(&self, sites: bool, patience: Duration) -> Result<Statistics, Problem> {
        parse(&self.ask(sites, patience)?)
    }

    pub fn has_ended(&self) -> bool {
        self.process.has_ended() || self.process.owner().is_ok_and(|owner| owner != self.owner)
    }

    fn open(path: &Path, user: u32) -> Result<Live, Problem> {
        let file = open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Problem::NoFile,
            _ => Problem::Refused(error),
        })?;
        // A name says little: anybody may make a file of any name there.
        if file.metadata().map_err(Problem::Refused)?.uid() != user {
            return Err(Problem::NoFile);
        }
        let owner = head(&file)?.owner;
        let page = Page::map(&file, HEAD_BYTES).map_err(Problem::Refused)?;
        Ok(Live { process: Process(owner.process_id), owner, file, page })
    }

    fn head(&self) -> Result<Head, Problem> {
        head(&self.file)
    }

    /// Of a process that is gone. One of another namespace cannot be judged.
    fn is_stale(&self) -> bool {
        let judged = processes::own().is_ok_and(|own| own.namespace == self.owner.namespace);
        judged
            && match self.process.owner() {
                Ok(present) => present.start != self.owner.start || self.process.has_ended(),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
    }

    /// None: it was just being written.
    fn text(&self) -> Result<Option<String>, Problem> {
        let before = self.head()?;
        if before.sequence % 2 == 1 || before.text_bytes > TEXT_BYTES_MAX {
            return Ok(None);
        }
        let mut text = vec![0; before.text_bytes as usize];
        let read = self.file.read_exact_at(&mut text, HEAD_BYTES as u64);
        if read.is_err() || self.head()?.sequence != before.sequence {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }
}

pub fn parse(json: &str) -> Result<Statistics, Problem> {
    serde_json::from_str(json).map_err(|error| Problem::Garbled(error.to_string()))
}

fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

fn head(file: &File) -> Result<Head, Problem> {
    let mut bytes = [0; HEAD_BYTES];
    // What is missing of a shorter head is zero.
    let _ = file.read_at(&mut bytes, 0).map_err(Problem::Refused)?;
    Head::from_bytes(&bytes).ok_or(Problem::OtherLayout)
}

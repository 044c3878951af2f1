//! The statistics of running programs: their files in `/dev/shm`, whose layout and protocol are
//! `cachealloc_statistics::page`. A process that does not respond is not waited for, and none is
//! ever stopped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cachealloc_foreign::process::Fate;
use cachealloc_foreign::{Way, open_where};
use cachealloc_statistics::page::{
    ANSWERED_OFFSET, DOORBELL_OFFSET, HEAD_BYTES, Head, NAME_BEGIN, Owner, REQUESTS_OFFSET,
    SITE_REQUESTS_OFFSET, may_be_of,
};
use cachealloc_statistics::sender;

use crate::kernel::Page;
use crate::processes::{self, Process};

mod control;
mod diagnose;
pub(crate) mod nvml;
mod statistics;

pub(crate) use control::Refusal;
pub(crate) use diagnose::{LIBRARY_NAME, explain};
pub(crate) use statistics::{CallSite, Frame, Gpu, Library, Recording, Statistics, Timed};

const FOLDER: &str = "/dev/shm";
const ROOT: u32 = 0;
/// Longer texts are none of ours. Root reads those of all users, any of which may have made many.
const TEXT_BYTES_MAX: u64 = 256 << 20;
const TEXT_BYTES_OF_OTHERS_MAX: u64 = 4 << 20;
/// So many processes of one user are looked at.
const OF_ONE_USER_MAX: usize = 1000;
/// In a reply whose call sites another request consumed.
const NO_SITES: &str = "\"call_sites\": null";
const NOT_RECORDED: &str = "\"libraries\": null";
/// How much later an answer is there that is just being written.
const WRITES_FOR: Duration = Duration::from_millis(1);
/// So often it is looked whether the process is still there.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A process under the library.
pub(crate) struct Live {
    /// By its number for us.
    pub process: Process,
    /// As it says.
    owner: Owner,
    /// The process as it was when it was found.
    seen: Option<Owner>,
    path: PathBuf,
    /// Whose file it is.
    pub user: u32,
    file: File,
    page: Page,
}

enum State {
    Lives,
    /// The file is of a program that it was before.
    Left,
    /// It has other rights now, and cannot open its own file.
    OtherUser,
    /// It cannot be seen from here whether the process lives.
    Unknown,
}

/// Why a file is none that we can read, and whose it is.
struct Refused {
    user: Option<u32>,
    why: Problem,
}

/// What was asked of a process.
#[derive(Clone, Copy)]
pub(crate) struct Request(u32);

/// Why a process has no statistics for us.
#[derive(Debug)]
pub(crate) enum Problem {
    /// No file of it, or one of an earlier process.
    NoFile,
    /// What lies in its `/dev/shm` cannot be seen from here.
    NoFolder(io::Error),
    /// Its file is that of another user: it has changed its own since it made it.
    OtherUser(u32),
    /// Its file is of a program that it was before.
    OtherProgram,
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
    /// The file of a process, of any user and in any namespace: a container has a `/dev/shm` of its
    /// own, and numbers of its own.
    pub(crate) fn of(process: Process) -> Result<Live, Problem> {
        let (Ok(owner), Some(user)) = (process.owner(), process.user()) else {
            return Err(Problem::NoFile);
        };
        let its_own = process.folder().join("root").join(&FOLDER[1..]);
        let mut problem = match fs::read_dir(&its_own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Problem::NoFolder(error),
            _ => Problem::NoFile,
        };
        for folder in [&its_own, Path::new(FOLDER)] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if !may_be_of(&entry.file_name().to_string_lossy(), owner.process_id) {
                    continue;
                }
                match Live::open(&entry.path(), process) {
                    Ok(live) if live.may_be_of(&owner) => match live.state(user) {
                        State::Lives => return Ok(live),
                        State::OtherUser => problem = Problem::OtherUser(live.user),
                        State::Left if live.owner == owner => {
                            let _ = fs::remove_file(entry.path()); // of a program that is over
                            let ended = process.has_ended();
                            problem = if ended { Problem::Ended } else { Problem::OtherProgram };
                        }
                        // Of an earlier process. Those of other users are removed by their next
                        // program.
                        State::Left => live.remove_if_of(user, &entry.path()),
                        State::Unknown => {}
                    },
                    // Any user may make a file of any name there.
                    Err(Refused { user: whose, why }) if whose == Some(user) => problem = why,
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Err(problem)
    }

    /// All processes of this user in this namespace, of root those of all users, by their numbers.
    /// What dead ones of this user left is removed.
    pub(crate) fn all() -> Vec<Live> {
        let user = nix::unistd::geteuid().as_raw();
        let begin = if user == ROOT { NAME_BEGIN.into() } else { format!("{NAME_BEGIN}{user}-") };
        let own = processes::own().ok();
        let mut all = Vec::new();
        let mut counts = BTreeMap::new();
        for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(&begin) {
                continue;
            }
            let about = entry.metadata().ok().filter(|about| about.is_file());
            let Some(of_user) = about.map(|about| counts.entry(about.uid()).or_insert(0)) else {
                continue;
            };
            *of_user += 1;
            if *of_user > OF_ONE_USER_MAX {
                continue;
            }
            let Ok(mut live) = Live::open(&entry.path(), Process(0)) else { continue };
            live.process = Process(live.owner.process_id);
            let is_here = own.is_some_and(|own| own.namespace == live.owner.namespace);
            if !is_here || (live.user != user && user != ROOT) {
                continue;
            }
            live.seen = live.process.owner().ok();
            match live.state(live.user) {
                // Those of other users are removed by their next program.
                State::Left => live.remove_if_of(user, &entry.path()),
                State::OtherUser | State::Unknown => {} // it could not answer, or is not known
                // Any user may make a file that says it is another one's.
                State::Lives if live.process.user() != Some(live.user) && live.user != user => {}
                State::Lives => all.push(live),
            }
        }
        all.sort_by_key(|live| live.process.0);
        all
    }

    fn remove_if_of(&self, user: u32, path: &Path) {
        if self.user == user {
            let _ = fs::remove_file(path); // it may be gone already
        }
    }

    /// What has become of the process that made the file, and is still there.
    fn state(&self, user: u32) -> State {
        let user_now = self.process.user().unwrap_or(user);
        let inode = self.file.metadata().map_or(0, |about| about.ino());
        match self.process.fate_of((&self.path, inode), &self.owner) {
            Fate::Gone | Fate::OtherProgram => State::Left,
            Fate::Unknown => State::Unknown,
            Fate::Lives if user_now != self.user && user_now != ROOT => State::OtherUser,
            Fate::Lives => State::Lives,
        }
    }

    /// Whether it says so. The start is another number for each namespace of times.
    fn may_be_of(&self, owner: &Owner) -> bool {
        let number = |owner: &Owner| (owner.process_id, owner.namespace);
        number(&self.owner) == number(owner)
    }

    /// Asks the process for its statistics, as JSON. `sites`: with call sites, where it records.
    pub(crate) fn ask(&self, sites: bool, timeout: Duration) -> Result<String, Problem> {
        let deadline = Instant::now() + timeout;
        loop {
            let text = self.answer(self.request(sites)?, deadline)?;
            if !(sites && lacks_sites(&text)) || Instant::now() > deadline {
                return Ok(text);
            }
        }
    }

    /// Asks, and does not wait.
    pub(crate) fn request(&self, sites: bool) -> Result<Request, Problem> {
        if sites {
            self.page.wake(SITE_REQUESTS_OFFSET).map_err(Problem::Refused)?;
        }
        self.page.wake(REQUESTS_OFFSET).map_err(Problem::Refused)?;
        // Ours, or another reader's slightly later one: both are answered after ours was made.
        let number = self.head()?.requests;
        self.page.wake(DOORBELL_OFFSET).map_err(Problem::Refused)?;
        Ok(Request(number))
    }

    /// Waits for the answer to a request; not for that of a process that is stopped, which has
    /// none.
    pub(crate) fn answer(
        &self,
        Request(number): Request,
        deadline: Instant,
    ) -> Result<String, Problem> {
        loop {
            let answered = self.head()?.answered;
            if answered.wrapping_sub(number) as i32 >= 0 {
                if let Some(text) = self.text()? {
                    return Ok(text);
                }
                std::thread::sleep(WRITES_FOR);
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

    pub(crate) fn statistics(&self, sites: bool, timeout: Duration) -> Result<Statistics, Problem> {
        parse(&self.ask(sites, timeout)?)
    }

    pub(crate) fn has_ended(&self) -> bool {
        let is_other = |now: Owner| self.seen.is_some_and(|seen| seen != now);
        self.process.has_ended() || self.process.owner().is_ok_and(is_other)
    }

    fn open(path: &Path, process: Process) -> Result<Live, Refused> {
        let refused = |user, why| Refused { user, why };
        let file = open(path).map_err(|error| {
            let user = fs::symlink_metadata(path).ok().map(|about| about.uid());
            refused(user, Problem::Refused(error))
        })?;
        let about = file.metadata().map_err(|error| refused(None, Problem::Refused(error)))?;
        let refused = |why| refused(Some(about.uid()), why);
        let owner = head(&file).map_err(refused)?.owner;
        let page =
            Page::map(&file, HEAD_BYTES).map_err(|error| refused(Problem::Refused(error)))?;
        let (seen, path) = (process.owner().ok(), path.to_path_buf());
        Ok(Live { process, owner, seen, path, user: about.uid(), file, page })
    }

    fn head(&self) -> Result<Head, Problem> {
        head(&self.file)
    }

    fn text_bytes_max(&self) -> u64 {
        let is_own = self.user == nix::unistd::geteuid().as_raw();
        if is_own { TEXT_BYTES_MAX } else { TEXT_BYTES_OF_OTHERS_MAX }
    }

    /// None: it was just being written.
    fn text(&self) -> Result<Option<String>, Problem> {
        let before = self.head()?;
        if before.sequence % 2 == 1 || before.text_bytes > self.text_bytes_max() {
            return Ok(None);
        }
        // Memory for what is there, not for what is said to be.
        let there = self.file.metadata().map_err(Problem::Refused)?.len();
        if before.text_bytes > there {
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

/// The reply to a request for call sites, which another one consumed.
pub(crate) fn lacks_sites(json: &str) -> bool {
    json.contains(NO_SITES) && !json.contains(NOT_RECORDED)
}

pub(crate) fn parse(json: &str) -> Result<Statistics, Problem> {
    serde_json::from_str(json).map_err(|error| Problem::Garbled(error.to_string()))
}

fn open(path: &Path) -> io::Result<File> {
    Ok(open_where(path, Way::WriteUnlinked, |_| true)?.into_file())
}

fn head(file: &File) -> Result<Head, Problem> {
    sender::head(file).map_err(Problem::Refused)?.ok_or(Problem::OtherLayout)
}

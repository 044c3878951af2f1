//! The statistics of running programs: their files in `/dev/shm`, whose layout and protocol are
//! described in `cachealloc_statistics::page`. A process that does not respond is not waited for,
//! and no process is ever stopped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cachealloc_foreign::process::Fate;
use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_foreign::{Way, open_where, shared_memory};
use cachealloc_statistics::page::{
    ANSWERED_OFFSET, DOORBELL_OFFSET, HEAD_BYTES, Head, NAME_BEGIN, Owner, REQUESTS_OFFSET,
    SITE_REQUESTS_OFFSET,
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

const ROOT: u32 = 0;
/// Longer texts were not written by the library. Root reads the files of all users, and any user
/// may have made many.
const TEXT_BYTES_MAX: u64 = 256 << 20;
const TEXT_BYTES_OF_OTHERS_MAX: u64 = 4 << 20;
/// Maximum number of processes examined of each other user.
const OF_ONE_USER_MAX: usize = 1000;
/// Appears in a reply whose call sites another request consumed.
const NO_SITES: &str = "\"call_sites\": null";
const NOT_RECORDED: &str = "\"libraries\": null";
/// How long to wait for an answer that is being written.
const WRITES_FOR: Duration = Duration::from_millis(1);
/// Interval between checks that the process still exists.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A process under the library.
pub(crate) struct Live {
    /// The process, by its number in this namespace.
    pub process: Process,
    /// Owner as stated in the file.
    owner: Owner,
    /// Owner as observed when the process was found.
    seen: Option<Owner>,
    path: PathBuf,
    /// Owner of the file.
    pub user: u32,
    file: File,
    page: Page,
}

enum State {
    Lives,
    /// The process is gone, or has executed another program since it made the file.
    Left,
    /// The process has changed its credentials and cannot open its own file.
    OtherUser,
    /// Whether the process lives cannot be determined from here.
    Unknown,
}

/// Reason why a file cannot be used, and the user that owns it.
struct Refused {
    user: Option<u32>,
    why: Problem,
}

/// Number of a request sent to a process.
#[derive(Clone, Copy)]
struct Request(u32);

/// Reason why no statistics can be read from a process.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The process has no file, or only one of an earlier process.
    NoFile,
    /// The process's `/dev/shm` cannot be read from here.
    NoFolder(io::Error),
    /// The file belongs to another user: the process has changed its user since it made the file.
    OtherUser(u32),
    /// The file belongs to a program that the process ran before an `exec`.
    OtherProgram,
    /// The file was made by a library of another version.
    OtherLayout,
    /// The file cannot be accessed.
    Refused(io::Error),
    /// The process did not answer in time.
    Silent,
    /// The process ended.
    Ended,
    /// The answer cannot be parsed.
    Garbled(String),
}

impl Live {
    /// Opens the file of a process, of any user and in any namespace: a container has a separate
    /// `/dev/shm` and separate process numbers.
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
                let name = entry.file_name();
                let named = shared_memory::owner_of_name(NAME_BEGIN, &name.to_string_lossy());
                if named.is_none_or(|named| named.process_id != owner.process_id) {
                    continue;
                }
                match Live::open(&entry.path(), process) {
                    Ok(live) if live.may_be_of(&owner) => match live.state(user) {
                        State::Lives => return Ok(live),
                        State::OtherUser => problem = Problem::OtherUser(live.user),
                        State::Left if live.owner == owner => {
                            let _ = fs::remove_file(entry.path()); // its program has ended
                            let ended = process.has_ended();
                            problem = if ended { Problem::Ended } else { Problem::OtherProgram };
                        }
                        // The file of an earlier process. Another user's file is removed by that
                        // user's next program.
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

    /// Returns all processes of this user in this namespace, ordered by number; for root, those of
    /// all users. Removes the files of this user's dead processes.
    pub(crate) fn all() -> Vec<Live> {
        processes::allow_many_files();
        let user = nix::unistd::geteuid().as_raw();
        let begin = if user == ROOT { NAME_BEGIN.into() } else { format!("{NAME_BEGIN}{user}-") };
        let own = processes::own().ok();
        let mut all = Vec::new();
        let mut counts = BTreeMap::new();
        for (path, about) in shared_memory::files(begin) {
            // Histories have the same beginning.
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if shared_memory::owner_of_name(NAME_BEGIN, &name).is_none() {
                continue;
            }
            let of_user = counts.entry(about.uid()).or_insert(0);
            *of_user += 1;
            if *of_user > OF_ONE_USER_MAX && about.uid() != user {
                continue;
            }
            let Ok(mut live) = Live::open(&path, Process(0)) else { continue };
            live.process = Process(live.owner.process_id);
            let is_here = own.is_some_and(|own| own.namespace == live.owner.namespace);
            if !is_here || (live.user != user && user != ROOT) {
                continue;
            }
            live.seen = live.process.owner().ok();
            match live.state(live.user) {
                // Files of other users are removed by their next program.
                State::Left => live.remove_if_of(user, &path),
                State::OtherUser | State::Unknown => {} // cannot answer, or is unknown
                // Any user may make a file that names another user's process.
                State::Lives if live.user != user && live.process.user() != Some(live.user) => {}
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

    /// Returns the state of the process that made the file.
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

    /// Returns whether the file names this process. The start time is not compared, because it
    /// differs between time namespaces.
    fn may_be_of(&self, owner: &Owner) -> bool {
        let number = |owner: &Owner| (owner.process_id, owner.namespace);
        number(&self.owner) == number(owner)
    }

    /// Requests the statistics of the process as JSON. With `sites`, the reply includes call sites
    /// if the process records them.
    pub(crate) fn ask(&self, sites: bool, timeout: Duration) -> Result<String, Problem> {
        let deadline = Instant::now() + timeout;
        loop {
            let text = self.answer(self.request(sites)?, deadline)?;
            if !(sites && lacks_sites(&text)) || Instant::now() > deadline {
                return Ok(text);
            }
        }
    }

    /// Requests the statistics of all these processes, and returns the answers in order. Sends all
    /// requests before it waits for any answer.
    pub(crate) fn ask_all(
        all: &[Live],
        wants_sites: impl Fn(&Live) -> bool,
        timeout: Duration,
    ) -> impl Iterator<Item = (&Live, Result<String, Problem>)> {
        let deadline = Instant::now() + timeout;
        let asked: Vec<_> = all.iter().map(|live| live.request(wants_sites(live))).collect();
        all.iter().zip(asked).map(move |(live, request)| {
            let json = request.and_then(|request| live.answer(request, deadline));
            // Another reader's request may have consumed the call sites.
            let lacks = json.as_ref().is_ok_and(|json| wants_sites(live) && lacks_sites(json));
            let left = deadline.saturating_duration_since(Instant::now());
            (live, if lacks { live.ask(true, left) } else { json })
        })
    }

    /// Sends a request without waiting for the answer.
    fn request(&self, sites: bool) -> Result<Request, Problem> {
        if sites {
            self.page.wake(SITE_REQUESTS_OFFSET).map_err(Problem::Refused)?;
        }
        self.page.wake(REQUESTS_OFFSET).map_err(Problem::Refused)?;
        // This request, or a slightly later one of another reader: the answer to either is made
        // after this request.
        let number = self.head()?.requests;
        self.page.wake(DOORBELL_OFFSET).map_err(Problem::Refused)?;
        Ok(Request(number))
    }

    /// Waits for the answer to a request. Does not wait for a stopped process, which cannot answer.
    fn answer(&self, Request(number): Request, deadline: Instant) -> Result<String, Problem> {
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

    /// Returns `None` if the text was being written.
    fn text(&self) -> Result<Option<String>, Problem> {
        let before = self.head()?;
        if before.sequence % 2 == 1 || before.text_bytes > self.text_bytes_max() {
            return Ok(None);
        }
        // Allocate for the bytes that the file has, not for the number it claims.
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

/// Returns whether the reply lacks its call sites because another request consumed them.
fn lacks_sites(json: &str) -> bool {
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

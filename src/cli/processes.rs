//! Reads information about processes from `/proc`.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use cachealloc_foreign::process::own;
use cachealloc_foreign::process::{Fate, fate, living_thread, owner_at, read};
use cachealloc_statistics::page::Owner;
use cachealloc_text::{cut, plain};

/// Longer command lines are cut.
const COMMAND_LETTERS_MAX: usize = 1000;

/// Disposition of a signal in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disposition {
    Caught,
    Ignored,
    /// The default action, which ends most programs.
    Default,
}

/// A process, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process(pub u32);

/// Programs that run scripts.
const INTERPRETERS: [&str; 8] = ["python", "pypy", "bash", "sh", "perl", "ruby", "node", "julia"];

/// Returns which word of a command line is the script: the first that is not an option of an
/// interpreter.
fn script_at(words: &[&str]) -> Option<usize> {
    let program = words.first()?.rsplit('/').next().unwrap_or_default();
    let is = |known: &&str| {
        let version = program.strip_prefix(known);
        version.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    INTERPRETERS.iter().find(|known| is(known))?;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match *word {
            // A module or a command has no script file.
            "-m" | "-c" => return None,
            "-X" | "-W" => at += 2,
            option if option.starts_with('-') => at += 1,
            "" => return None,
            _ => return Some(at),
        }
    }
    None
}

/// Parses a process ID given as an argument.
pub(crate) fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number
        .ok_or_else(|| "expected a process ID; `cachealloc top --once` lists the processes".into())
}

impl Process {
    pub(crate) fn exists(self) -> bool {
        self.folder().exists()
    }

    /// Returns the process's identity, which distinguishes it from a later process with the same
    /// number.
    pub(crate) fn owner(self) -> io::Result<Owner> {
        owner_at(&self.folder())
    }

    /// Returns the user whose rights the process has.
    pub(crate) fn user(self) -> Option<u32> {
        self.status("Uid:")?.split_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the command line as one would type it, or the process's name in brackets if it has
    /// none.
    pub(crate) fn command(self) -> String {
        self.command_of(&self.read("cmdline").unwrap_or_default())
    }

    fn command_of(self, line: &[u8]) -> String {
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let line = words.join(" ");
        match line.trim() {
            "" => format!("[{}]", plain(&self.status("Name:").unwrap_or_default())),
            line => plain(&cut(line, COMMAND_LETTERS_MAX)).into_owned(),
        }
    }

    /// Returns the command, and a short title for a table. A script is shown by its name, without
    /// its interpreter and folder.
    pub(crate) fn command_and_title(self) -> (String, String) {
        let line = self.read("cmdline").unwrap_or_default();
        let command = self.command_of(&line);
        let line = String::from_utf8_lossy(&line);
        let words: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
        let title = match script_at(&words) {
            Some(at) => {
                let name = words[at].rsplit('/').next().unwrap_or_default();
                let all: Vec<&str> = [name].iter().chain(&words[at + 1..]).copied().collect();
                plain(&cut(&all.join(" "), COMMAND_LETTERS_MAX)).into_owned()
            }
            None => command.clone(),
        };
        (command, title)
    }

    /// Returns a variable of the environment that the process was started with.
    pub(crate) fn variable(self, name: &str) -> Option<String> {
        let environment = self.read("environ").ok()?;
        let begin = format!("{name}=");
        let found = environment.split(|byte| *byte == 0);
        let mut found = found.filter_map(|word| word.strip_prefix(begin.as_bytes()));
        found.next().map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Returns whether a file of this name is mapped into the process.
    pub(crate) fn maps(self, file_name: &str) -> io::Result<bool> {
        let maps = self.read("maps")?;
        let maps = String::from_utf8_lossy(&maps);
        let end = format!("/{file_name}");
        Ok(maps.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(&end)))
    }

    /// Returns whether a file whose name begins with `begin` is mapped, or `None` if that cannot be
    /// read.
    pub(crate) fn maps_begin(self, begin: &str) -> Option<bool> {
        let maps = self.read("maps").ok()?;
        let maps = String::from_utf8_lossy(&maps);
        let name = |line: &str| line.rsplit_once('/').is_some_and(|it| it.1.starts_with(begin));
        Some(maps.lines().any(name))
    }

    pub(crate) fn disposition(self, signal: i32) -> Option<Disposition> {
        let has = |key| Some(mask(&self.status(key)?)? >> (signal - 1) & 1 != 0);
        Some(match (has("SigCgt:")?, has("SigIgn:")?) {
            (true, _) => Disposition::Caught,
            (_, true) => Disposition::Ignored,
            _ => Disposition::Default,
        })
    }

    /// Returns whether every thread of the process blocks this signal.
    pub(crate) fn blocks(self, signal: i32) -> bool {
        let threads = fs::read_dir(self.folder().join("task")).into_iter().flatten().flatten();
        let mut masks = threads.filter_map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).ok()?;
            mask(&field(&status, "SigBlk:")?)
        });
        masks.all(|mask| mask >> (signal - 1) & 1 != 0)
    }

    /// Returns whether a signal or a debugger has stopped the process.
    pub(crate) fn is_stopped(self) -> bool {
        self.status("State:").is_some_and(|state| state.starts_with(['T', 't']))
    }

    /// Returns whether the process has ended, reaped or not: with all its threads, not only the
    /// first.
    pub(crate) fn has_ended(self) -> bool {
        living_thread(&self.folder()).is_none()
    }

    /// Returns the fate of the process with this number that made a file.
    pub(crate) fn fate_of(self, file: (&Path, u64), owner: &Owner) -> Fate {
        fate(&self.folder(), file, owner, || self.takes_signals())
    }

    /// Returns whether the process exists, even if its folder in `/proc` is hidden from this user.
    fn takes_signals(self) -> bool {
        use nix::errno::Errno;
        use nix::sys::signal::kill;
        let number = nix::unistd::Pid::from_raw(self.0 as i32);
        matches!(kill(number, None), Ok(()) | Err(Errno::EPERM))
    }

    /// Reads a file of the process's folder, or of another thread's folder if the first thread has
    /// ended.
    fn read(self, name: &str) -> io::Result<Vec<u8>> {
        let folder = living_thread(&self.folder()).unwrap_or_else(|| self.folder());
        read(&folder.join(name))
    }

    pub(crate) fn folder(self) -> PathBuf {
        Path::new("/proc").join(self.0.to_string())
    }

    fn status(self, key: &str) -> Option<String> {
        field(&String::from_utf8_lossy(&self.read("status").ok()?), key)
    }
}

/// The processes of other namespaces, by their numbers there. They are looked for once, when the
/// first of them is wanted.
#[derive(Default)]
pub(crate) struct OtherNamespaces(OnceCell<HashMap<(u32, u64), Process>>);

impl OtherNamespaces {
    /// Returns the process of this owner. The start time is not compared, because it differs
    /// between time namespaces.
    fn find(&self, owner: &Owner) -> Option<Process> {
        let by_owner = self.0.get_or_init(|| {
            let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
            let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            let processes = numbers.map(Process);
            processes.filter_map(|it| Some((number_of(&it.owner().ok()?), it))).collect()
        });
        by_owner.get(&number_of(owner)).copied()
    }
}

/// Returns the process of this owner by its number in this namespace, since it may be in another
/// one.
pub(crate) fn with_owner(owner: &Owner, others: &OtherNamespaces) -> Option<Process> {
    match own().is_ok_and(|own| own.namespace == owner.namespace) {
        true => {
            let process = Process(owner.process_id);
            let is_it = |it: Owner| number_of(&it) == number_of(owner);
            process.owner().is_ok_and(is_it).then_some(process)
        }
        false => others.find(owner),
    }
}

fn number_of(owner: &Owner) -> (u32, u64) {
    (owner.process_id, owner.namespace)
}

/// Raises the number of files that this process may have open as far as it may: looking at many
/// processes takes one for each.
pub(crate) fn allow_many_files() {
    use nix::sys::resource::{Resource::RLIMIT_NOFILE, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(RLIMIT_NOFILE) {
        let _ = setrlimit(RLIMIT_NOFILE, most, most); // else those that cannot be opened are left out
    }
}

fn field(status: &str, key: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.map(|value| value.trim().to_string())
}

fn mask(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn scripts() {
        for (line, wanted) in [
            ("python3 train.py --lr 1", Some(1)),
            ("/usr/bin/python3.12 -u -X dev /a/train.py", Some(4)),
            ("bash -e run.sh", Some(2)),
            ("python3 -m torch.distributed.run", None),
            ("python3", None),
            ("./app python3 x", None),
            ("pythonista x", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(super::script_at(&words), wanted, "{line}");
        }
    }
}

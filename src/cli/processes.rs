//! What `/proc` says of a process.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cachealloc_statistics::page::{NAME_BEGIN, Owner, inner_number, start_of};
use cachealloc_text::{cut, plain};

/// More of a command line is not shown.
const COMMAND_LETTERS_MAX: usize = 1000;

/// What a process does with a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disposition {
    Caught,
    Ignored,
    /// Which ends most programs.
    Default,
}

/// A process, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process(pub u32);

impl Process {
    pub(crate) fn exists(self) -> bool {
        self.folder().exists()
    }

    /// Its identity: another process of the same number is another one.
    pub(crate) fn owner(self) -> io::Result<Owner> {
        owner_at(&self.folder())
    }

    /// Whose rights it has.
    pub(crate) fn user(self) -> Option<u32> {
        self.status("Uid:")?.split_whitespace().nth(1)?.parse().ok()
    }

    /// The command line, as one would type it; in brackets where it has none.
    pub(crate) fn command(self) -> String {
        let line = fs::read(self.folder().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let line = words.join(" ");
        match line.trim() {
            "" => format!("[{}]", plain(&self.status("Name:").unwrap_or_default())),
            line => plain(&cut(line, COMMAND_LETTERS_MAX)).into_owned(),
        }
    }

    /// A variable of the environment that it was started with.
    pub(crate) fn variable(self, name: &str) -> Option<String> {
        let environment = fs::read(self.folder().join("environ")).ok()?;
        let begin = format!("{name}=");
        let found = environment.split(|byte| *byte == 0);
        let mut found = found.filter_map(|word| word.strip_prefix(begin.as_bytes()));
        found.next().map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Whether a file of this name is mapped into it.
    pub(crate) fn maps(self, file_name: &str) -> io::Result<bool> {
        let maps = fs::read(self.folder().join("maps"))?;
        let maps = String::from_utf8_lossy(&maps);
        let end = format!("/{file_name}");
        Ok(maps.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(&end)))
    }

    /// Whether a live file with this inode is mapped into it. None: that cannot be seen from here, or it ends
    /// and has no memory any longer.
    pub(crate) fn maps_page(self, inode: u64) -> Option<bool> {
        let maps = fs::read(self.folder().join("maps")).ok().filter(|maps| !maps.is_empty())?;
        let maps = String::from_utf8_lossy(&maps);
        let mut pages = maps.lines().filter(|line| line.contains(NAME_BEGIN));
        let inode = inode.to_string();
        Some(pages.any(|line| line.split_whitespace().nth(4) == Some(&inode)))
    }

    /// Whether a file is mapped whose name begins so. None: that cannot be seen from here.
    pub(crate) fn maps_begin(self, begin: &str) -> Option<bool> {
        let maps = fs::read(self.folder().join("maps")).ok()?;
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

    /// Whether no thread of it takes this signal.
    pub(crate) fn blocks(self, signal: i32) -> bool {
        let threads = fs::read_dir(self.folder().join("task")).into_iter().flatten().flatten();
        let mut masks = threads.filter_map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).ok()?;
            mask(&field(&status, "SigBlk:")?)
        });
        masks.all(|mask| mask >> (signal - 1) & 1 != 0)
    }

    /// Stopped by a signal or a debugger.
    pub(crate) fn is_stopped(self) -> bool {
        self.status("State:").is_some_and(|state| state.starts_with(['T', 't']))
    }

    /// Ended, reaped or not.
    pub(crate) fn has_ended(self) -> bool {
        self.status("State:").is_none_or(|state| state.starts_with(['Z', 'X']))
    }

    pub(crate) fn folder(self) -> PathBuf {
        Path::new("/proc").join(self.0.to_string())
    }

    fn status(self, key: &str) -> Option<String> {
        field(&fs::read_to_string(self.folder().join("status")).ok()?, key)
    }
}

/// The process of this owner, by its number for us: it may be in another namespace.
pub(crate) fn with_owner(owner: &Owner) -> Option<Process> {
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.map(Process).find(|process| process.owner().is_ok_and(|it| it == *owner))
}

/// Our own process, if `/proc` is that of our own namespace: else its numbers differ.
pub(crate) fn own() -> io::Result<Owner> {
    if fs::read_link("/proc/self")?.as_os_str() != std::process::id().to_string().as_str() {
        return Err(io::Error::other("/proc is of another namespace"));
    }
    owner_at(Path::new("/proc/self"))
}

fn owner_at(folder: &Path) -> io::Result<Owner> {
    let stat = fs::read(folder.join("stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    let number = stat.split(' ').next().and_then(|number| number.parse().ok());
    // Its own number, not the one that it has for us.
    let status = fs::read_to_string(folder.join("status"))?;
    let number = inner_number(&status).or(number);
    let (process_id, start) =
        number.zip(start_of(&stat)).ok_or_else(|| io::Error::other("/proc is not as expected"))?;
    Ok(Owner { process_id, start, namespace: fs::metadata(folder.join("ns/pid"))?.ino() })
}

fn field(status: &str, key: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.map(|value| value.trim().to_string())
}

fn mask(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

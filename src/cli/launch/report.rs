//! The report of one run: its snapshots lie in a folder of their own until it is made.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use cachealloc_history::name;
use nix::sys::signal::Signal;

use super::settings::Flags;
use crate::commands::report;
use crate::commands::run::NOT_THE_PROGRAM;
use crate::failure::{Failure, USAGE};
use crate::output;

const SNAPSHOT: &str = "snapshot";
const RECORD: &str = "record";
/// What no path in an option can have.
const NOT_IN_OPTIONS: [char; 4] = [',', '[', ']', '%'];

pub(crate) struct Wanted {
    output: PathBuf,
    folder: Folder,
}

/// A folder that this run has made, for itself alone. Where it is empty it goes with this value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0); // what has something in it stays
    }
}

impl Wanted {
    /// Makes the folder, and has the library write there.
    pub(crate) fn prepare(output: PathBuf, flags: &mut Flags) -> Result<Wanted, Failure> {
        if flags.has(SNAPSHOT) {
            let what = "--report and --snapshot do not go together: a report has its own snapshots";
            return Err(Failure::new(what)
                .next("record with --record --snapshot, then run: cachealloc report")
                .code(USAGE));
        }
        if flags.value(RECORD) == Some("off") {
            let what = "--report needs what --record=off leaves out";
            return Err(Failure::new(what).next("omit one of them").code(USAGE));
        }
        if !flags.has(RECORD) {
            flags.set(RECORD, "all");
        }
        let output = with_rank(&output, name::rank(|variable| std::env::var(variable).ok()));
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            return Err(Failure::new(format!("the folder {} does not exist", parent.display()))
                .next("create it, or give another name with --report")
                .code(USAGE));
        }
        output::check(&output).map_err(|failure| failure.code(USAGE))?;
        let folder = make_folder()?;
        flags.set(SNAPSHOT, &format!("{}/%h-%r-%p-%n.pickle", folder.0.display()));
        Ok(Wanted { output, folder })
    }

    /// Makes the report of a program that ended so: its name, and of how many snapshots it is. Where that
    /// fails, they stay.
    pub(crate) fn make(self, status: ExitStatus) -> Result<(PathBuf, usize), Failure> {
        let Wanted { output, folder } = self;
        let mut files: Vec<PathBuf> = fs::read_dir(&folder.0)
            .map(|folder| folder.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        // No other files, and none that is being written.
        files.retain(|file| file.extension().is_some_and(|end| end == "pickle"));
        files.sort();
        if files.is_empty() {
            return Err(without_snapshot(status));
        }
        report::write(&files, &output).map_err(|failure| {
            failure.also(format!("the snapshots are in {}", folder.0.display()))
        })?;
        for file in &files {
            let _ = fs::remove_file(file); // one that stays keeps the folder
        }
        Ok((output, files.len()))
    }
}

fn without_snapshot(status: ExitStatus) -> Failure {
    let signal = status.signal().map(|number| match Signal::try_from(number) {
        Ok(signal) => signal.to_string(),
        Err(_) => format!("signal {number}"),
    });
    match signal {
        Some(signal) => Failure::new(format!("no report: {signal} ended the program"))
            .next("take a snapshot while it runs: cachealloc snapshot PID"),
        None => Failure::new("no report: the program left no snapshot")
            .next("it used no CUDA, or a child process that did is still running"),
    }
}

/// `%r` becomes the rank; a name without it gets the rank before its end, because all ranks of a job
/// are given the same name.
fn with_rank(output: &Path, rank: Option<u32>) -> PathBuf {
    let name = output.as_os_str().as_bytes();
    let Some(rank) = rank else {
        return path(replaced(&replaced(name, b"-%r", b""), b"%r", b""));
    };
    let rank = rank.to_string();
    if name.windows(2).any(|piece| piece == b"%r") {
        return path(replaced(name, b"%r", rank.as_bytes()));
    }
    let mut with_rank = output.file_stem().unwrap_or_default().to_owned();
    with_rank.push(format!("-{rank}"));
    if let Some(end) = output.extension() {
        with_rank.push(".");
        with_rank.push(end);
    }
    output.with_file_name(with_rank)
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// A path is bytes, and need not be text.
fn replaced(name: &[u8], piece: &[u8], by: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    let mut rest = name;
    while let Some(at) = rest.windows(piece.len()).position(|it| it == piece) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(by);
        rest = &rest[at + piece.len()..];
    }
    made.extend_from_slice(rest);
    made
}

/// Under an unused name. A folder of another one belongs to a process of this number in another
/// namespace, or to an earlier one that left its snapshots.
fn make_folder() -> Result<Folder, Failure> {
    // An option is text.
    let fits = |folder: &PathBuf| {
        folder.is_dir()
            && folder.is_absolute()
            && folder.to_str().is_some_and(|text| {
                !text.contains(NOT_IN_OPTIONS) && !text.contains(char::is_whitespace)
            })
    };
    let temporary = Some(std::env::temp_dir()).filter(fits).unwrap_or("/tmp".into());
    let folder =
        temporary.join(format!("cachealloc-{}-{:016x}", std::process::id(), output::random()));
    // Where there is anything of this name, also a link, none is made.
    DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
        Failure::new(format!("{} cannot be made: {error}", folder.display()))
            .next("give a folder for temporary files with TMPDIR")
            .code(NOT_THE_PROGRAM)
    })?;
    Ok(Folder(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_in_the_name() {
        for (name, rank, wanted) in [
            ("out.html", None, "out.html"),
            ("out.html", Some(3), "out-3.html"),
            ("a.b/out", Some(3), "a.b/out-3"),
            ("out-%r.html", Some(12), "out-12.html"),
            ("out-%r.html", None, "out.html"),
            ("%r/out.html", Some(0), "0/out.html"),
        ] {
            assert_eq!(with_rank(Path::new(name), rank), Path::new(wanted), "{name}");
        }
    }
}

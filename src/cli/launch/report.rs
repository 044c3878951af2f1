//! The report of one run: its snapshots lie in a folder of their own until it is made.

use std::fs::{self, DirBuilder};
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

const SNAPSHOT: &str = "snapshot";
const RECORD: &str = "record";
/// What no path in an option can have.
const NOT_IN_OPTIONS: [char; 4] = [',', '[', ']', '%'];

pub struct Wanted {
    output: PathBuf,
    folder: PathBuf,
}

impl Wanted {
    /// Makes the folder, and has the library write there.
    pub fn prepare(output: PathBuf, flags: &mut Flags) -> Result<Wanted, Failure> {
        if flags.has(SNAPSHOT) {
            let what = "--report and --snapshot do not go together: a report has its own snapshots";
            return Err(Failure::new(what)
                .next("record with --record --snapshot, then make it with: cachealloc report")
                .code(USAGE));
        }
        if flags.value(RECORD) == Some("off") {
            let what = "--report needs what --record=off leaves out";
            return Err(Failure::new(what).next("leave one of them out").code(USAGE));
        }
        if !flags.has(RECORD) {
            flags.set(RECORD, "all");
        }
        let output = with_rank(&output, name::rank(|variable| std::env::var(variable).ok()));
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            return Err(Failure::new(format!("the folder {} does not exist", parent.display()))
                .next("make it, or give another name with --report")
                .code(USAGE));
        }
        let folder = make_folder()?;
        flags.set(SNAPSHOT, &format!("{}/%h-%r-%p-%n.pickle", folder.display()));
        Ok(Wanted { output, folder })
    }

    /// Makes the report of a program that ended so: its name, and of how many snapshots it is. Where that
    /// fails, they stay.
    pub fn make(self, status: ExitStatus) -> Result<(PathBuf, usize), Failure> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.folder)
            .map(|folder| folder.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        files.sort();
        if files.is_empty() {
            let _ = fs::remove_dir(&self.folder);
            return Err(without_snapshot(status));
        }
        report::write(&files, &self.output).map_err(|failure| {
            failure.also(format!("the snapshots are in {}", self.folder.display()))
        })?;
        let _ = fs::remove_dir_all(&self.folder); // only our own files
        Ok((self.output, files.len()))
    }
}

fn without_snapshot(status: ExitStatus) -> Failure {
    let signal = status.signal().map(|number| match Signal::try_from(number) {
        Ok(signal) => signal.to_string(),
        Err(_) => format!("signal {number}"),
    });
    match signal {
        Some(signal) => Failure::new(format!("no report: the program was ended by {signal}"))
            .next("take a snapshot before, while it runs: cachealloc snapshot PID"),
        None => Failure::new("no report: the program left no snapshot")
            .next("it used no CUDA, or another process of it did and is not over"),
    }
}

/// `%r` becomes the rank; a name without it gets the rank before its end, because all ranks of a job
/// are given the same name.
fn with_rank(output: &Path, rank: Option<u32>) -> PathBuf {
    let text = output.to_string_lossy();
    let Some(rank) = rank else {
        return PathBuf::from(text.replace("-%r", "").replace("%r", ""));
    };
    if text.contains("%r") {
        return PathBuf::from(text.replace("%r", &rank.to_string()));
    }
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let end = output.extension().map_or(String::new(), |end| format!(".{}", end.to_string_lossy()));
    output.with_file_name(format!("{stem}-{rank}{end}"))
}

fn make_folder() -> Result<PathBuf, Failure> {
    let fits = |folder: &PathBuf| {
        let text = folder.to_string_lossy();
        folder.is_dir()
            && folder.is_absolute()
            && !text.contains(NOT_IN_OPTIONS)
            && !text.contains(char::is_whitespace)
    };
    let temporary = Some(std::env::temp_dir()).filter(fits).unwrap_or("/tmp".into());
    let folder = temporary.join(format!("cachealloc-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder); // of an earlier process of this number
    DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
        Failure::new(format!("{} cannot be made: {error}", folder.display()))
            .next("name a folder for temporary files with TMPDIR")
            .code(NOT_THE_PROGRAM)
    })?;
    Ok(folder)
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

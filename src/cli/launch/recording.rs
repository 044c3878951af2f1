//! The snapshots that a run leaves for the command to examine after the program has ended, in a
//! separate folder.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cachealloc_history::write_snapshot;

use super::settings::Flags;
use crate::commands::recover;
use crate::failure::{Failure, NOT_THE_PROGRAM, USAGE, say};
use crate::orphans::{Fate, OrphanedHistory};
use crate::output;
use crate::processes::OtherNamespaces;

const SNAPSHOT: &str = "snapshot";
const RECORD: &str = "record";
/// Tolerance for comparing times: a process records when it was last alive to the second, and a
/// clock may be set.
const CLOCK_STEP: Duration = Duration::from_secs(10);
/// Maximum number of names tried for a snapshot that is kept.
const NAMES_MAX: u32 = 10_000;
/// Characters that a path in an option cannot contain.
const NOT_IN_OPTIONS: [char; 4] = [',', '[', ']', '%'];

/// A folder that this run created for its own use. Dropping this value removes the folder if it is
/// empty.
pub(crate) struct Recording {
    folder: PathBuf,
    begun: SystemTime,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder); // fails if the folder is not empty
    }
}

impl Recording {
    /// Creates the folder and directs the library's snapshots there. `flag` is the flag that needs
    /// the recording.
    pub(crate) fn prepare(flag: &str, flags: &mut Flags) -> Result<Recording, Failure> {
        check(flag, flags)?;
        if !flags.has(RECORD) {
            flags.set(RECORD, "all");
        }
        let recording = Recording { folder: make_folder()?, begun: SystemTime::now() };
        let folder = recording.folder.display();
        flags.set(SNAPSHOT, &format!("{folder}/%h-%r-%p-%n.pickle"));
        Ok(recording)
    }

    /// Returns the snapshots written so far, ordered by name.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.folder)
            .map(|folder| folder.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        // Leaves out other files and snapshots that are still being written.
        files.retain(|file| file.extension().is_some_and(|end| end == "pickle"));
        files.sort();
        files
    }

    /// Recovers snapshots of processes of this run that wrote none at their end because something
    /// killed them. Prints the failures.
    pub(crate) fn recover(&self) {
        let folder = format!("snapshot:{}/", self.folder.display());
        let others = OtherNamespaces::default();
        for left in OrphanedHistory::all() {
            let is_ours = left.seen + CLOCK_STEP >= self.begun;
            if !is_ours || !matches!(left.fate(&others), Fate::Gone | Fate::OtherProgram) {
                continue;
            }
            // Skips histories of another user or another run: the settings name the folder of its
            // snapshots.
            let Ok((snapshot, mut names)) = recover::snapshot_of(&left) else { continue };
            if !snapshot.settings.configuration.contains(&folder) {
                continue;
            }
            // This snapshot sorts as the last of its process.
            let process = left.owner.process_id;
            let path = self.folder.join(format!("recovered-{process}-{}.pickle", u32::MAX));
            let write = |out: &mut dyn Write| write_snapshot(&snapshot, &mut names, out);
            match output::write(&path, write) {
                Ok(()) => {
                    say(format_args!("process {process} was killed: recovered its history"));
                    let _ = fs::remove_file(&left.path); // `recover` lists it if it stays
                }
                Err(failure) => _ = failure.report(),
            }
        }
    }

    /// Moves the snapshots next to the report, under its name, and returns their names. `files`
    /// holds the last snapshot of each process, which contains the history of the earlier ones.
    pub(crate) fn keep_beside(&self, files: &[PathBuf], report: &Path) -> Vec<PathBuf> {
        let mut kept = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let stem = report.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let first = if number == 0 { stem.clone() } else { format!("{stem}-process{number}") };
            let name = |end: String| report.with_file_name(format!("{first}{end}.pickle"));
            let names = std::iter::once(name(String::new()))
                .chain((1..NAMES_MAX).map(|number| name(format!("-{number}"))));
            let copy = |out: &mut dyn Write| io::copy(&mut fs::File::open(file)?, out).map(drop);
            match output::write_new(names, copy) {
                Ok(path) => {
                    let _ = fs::remove_file(file); // if it stays, so does the folder
                    kept.push(path);
                }
                Err(failure) => {
                    failure.also(format!("it is kept in {}", file.display())).report();
                }
            }
        }
        kept
    }

    /// Removes the snapshots and prints that it did, because the library has printed their names.
    pub(crate) fn remove(self, files: &[PathBuf]) {
        for file in files {
            let _ = fs::remove_file(file); // if it stays, so does the folder
        }
        match files.len() {
            0 => {}
            1 => say(format_args!("removed the snapshot")),
            snapshots => say(format_args!("removed {snapshots} snapshots")),
        }
    }

    /// Adds to a failure where the snapshots are kept, if there are any.
    pub(crate) fn keep(&self, files: &[PathBuf], failure: Failure) -> Failure {
        match files {
            [] => failure,
            _ => failure.also(format!("the snapshots are in {}", self.folder.display())),
        }
    }
}

/// Checks that the flags allow snapshots. `flag` is the flag that needs them.
fn check(flag: &str, flags: &Flags) -> Result<(), Failure> {
    if flags.has(SNAPSHOT) {
        let what = format!("cannot use {flag} with --snapshot: {flag} names its snapshots itself");
        return Err(Failure::new(what)
            .next("record with --record --snapshot, then run: cachealloc report")
            .code(USAGE));
    }
    if flags.value(RECORD) == Some("off") {
        let what = format!("cannot use {flag} with --record=off: it needs the history");
        return Err(Failure::new(what).next("omit one of them").code(USAGE));
    }
    Ok(())
}

/// Creates a folder under an unused name. An existing one belongs to a process with this number in
/// another namespace, or to an earlier process that left its snapshots.
fn make_folder() -> Result<PathBuf, Failure> {
    // An option is text, so the path must be UTF-8.
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
    // Creation fails if the name exists in any form, including a link.
    DirBuilder::new().mode(0o700).create(&folder).map_err(|error| {
        Failure::new(format!("cannot create {}: {error}", folder.display()))
            .next("set TMPDIR to a folder for temporary files")
            .code(NOT_THE_PROGRAM)
    })?;
    Ok(folder)
}

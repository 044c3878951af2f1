//! What a run leaves for the command to look at when the program has ended: snapshots, in a folder
//! of their own.

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

const SNAPSHOT: &str = "snapshot";
const RECORD: &str = "record";
/// A process says to the second when it was last there, and a clock may be set.
const CLOCK_STEP: Duration = Duration::from_secs(10);
/// So many names are tried for a snapshot that is kept.
const NAMES_MAX: u32 = 10_000;
/// What no path in an option can have.
const NOT_IN_OPTIONS: [char; 4] = [',', '[', ']', '%'];

/// A folder that this run has made, for itself alone. Where it is empty it goes with this value.
pub(crate) struct Recording {
    folder: PathBuf,
    begun: SystemTime,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder); // what has something in it stays
    }
}

impl Recording {
    /// Makes the folder, and has the library write there. `flag`: what asks for it.
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

    /// The snapshots that are there by now, by name.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.folder)
            .map(|folder| folder.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        // No other files, and none that is being written.
        files.retain(|file| file.extension().is_some_and(|end| end == "pickle"));
        files.sort();
        files
    }

    /// Makes snapshots of what processes of this run have left that wrote none at their end,
    /// because something killed them. Says what cannot be made.
    pub(crate) fn recover(&self) {
        let folder = format!("snapshot:{}/", self.folder.display());
        for left in OrphanedHistory::all() {
            let is_ours = left.seen + CLOCK_STEP >= self.begun;
            if !is_ours || !matches!(left.fate(), Fate::Gone | Fate::OtherProgram) {
                continue;
            }
            // Another user's, or of another run: the settings say where its snapshots were to go.
            let Ok((snapshot, mut names)) = recover::snapshot_of(&left) else { continue };
            if !snapshot.settings.configuration.contains(&folder) {
                continue;
            }
            // The last of its process.
            let process = left.owner.process_id;
            let path = self.folder.join(format!("recovered-{process}-{}.pickle", u32::MAX));
            let write = |out: &mut dyn Write| write_snapshot(&snapshot, &mut names, out);
            match output::write(&path, write) {
                Ok(()) => {
                    say(format_args!("process {process} was killed: its history is recovered"));
                    let _ = fs::remove_file(&left.path); // what stays is listed by `recover`
                }
                Err(failure) => _ = failure.report(),
            }
        }
    }

    /// Moves the snapshots to where the report is, under its name: the last of each process, which
    /// has the history of those before. Returns their names.
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
                    let _ = fs::remove_file(file); // one that stays keeps the folder
                    kept.push(path);
                }
                Err(failure) => {
                    failure.also(format!("it stays in {}", file.display())).report();
                }
            }
        }
        kept
    }

    /// Says so, because the library has named them.
    pub(crate) fn remove(self, files: &[PathBuf]) {
        for file in files {
            let _ = fs::remove_file(file); // one that stays keeps the folder
        }
        match files.len() {
            0 => {}
            1 => say(format_args!("the snapshot is removed")),
            snapshots => say(format_args!("the {snapshots} snapshots are removed")),
        }
    }

    /// What failed, and where the snapshots stay, if there are any.
    pub(crate) fn keep(&self, files: &[PathBuf], failure: Failure) -> Failure {
        match files {
            [] => failure,
            _ => failure.also(format!("the snapshots are in {}", self.folder.display())),
        }
    }
}

/// Whether snapshots can be had beside what the flags say; `flag` is what asks for them.
fn check(flag: &str, flags: &Flags) -> Result<(), Failure> {
    if flags.has(SNAPSHOT) {
        let what =
            format!("{flag} and --snapshot do not go together: {flag} has its own snapshots");
        return Err(Failure::new(what)
            .next("record with --record --snapshot, then run: cachealloc report")
            .code(USAGE));
    }
    if flags.value(RECORD) == Some("off") {
        let what = format!("{flag} needs what --record=off leaves out");
        return Err(Failure::new(what).next("omit one of them").code(USAGE));
    }
    Ok(())
}

/// Under an unused name. A folder of another one belongs to a process of this number in another
/// namespace, or to an earlier one that left its snapshots.
fn make_folder() -> Result<PathBuf, Failure> {
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
    Ok(folder)
}

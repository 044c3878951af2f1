//! What a run leaves for the command to look at when the program has ended: snapshots, in a folder of their own.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use super::settings::Flags;
use crate::failure::{Failure, NOT_THE_PROGRAM, USAGE, say};
use crate::output;

const SNAPSHOT: &str = "snapshot";
const RECORD: &str = "record";
/// What no path in an option can have.
const NOT_IN_OPTIONS: [char; 4] = [',', '[', ']', '%'];

/// A folder that this run has made, for itself alone. Where it is empty it goes with this value.
pub(crate) struct Recording {
    folder: PathBuf,
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
        let recording = Recording { folder: make_folder()? };
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

//! `cachealloc recover`: makes a snapshot from the history that a killed process left.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_history::persistent::{self, Restored};
use cachealloc_history::{Snapshot, write_snapshot};
use cachealloc_text::plain;
use clap::Args;

use super::Result;
use crate::failure::{Failure, say};
use crate::orphans::{FOLDER, Fate, Names, OrphanedHistory};
use crate::progress::Progress;
use crate::{output, show};

/// Make a snapshot from the records of a killed process.
///
/// A recording process keeps its history in a file of /dev/shm, and removes it at exit. After kill
/// -9, a crash or the kernel's out-of-memory killer the file is left, with every entry and the
/// final state of the memory. Only libraries and Python functions first seen in the last second may
/// lack names.
///
/// The file stays until --remove, for a day, or until such files fill a quarter of /dev/shm: then
/// the next recording program of the user removes the oldest. Without a process this lists the
/// files.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A killed process, or the file that it left.
    #[arg(value_name = "PID|FILE")]
    left: Option<PathBuf>,
    /// The output file; default: the first free of cachealloc-PID-recovered.pickle, ...-1.pickle.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Remove the file that the process left, once the snapshot is written.
    #[arg(long)]
    remove: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Some(wanted) = &arguments.left else { return list() };
    let left = find(wanted)?;
    check_fate(&left)?;
    let name = left.path.display();
    let (snapshot, mut names) = snapshot_of(&left)?;
    let write = |out: &mut dyn std::io::Write| write_snapshot(&snapshot, &mut names, out);
    let path = match &arguments.output {
        Some(path) => output::write(path, write).map(|()| path.clone())?,
        None => output::write_new(file_names(left.owner.process_id), write)?,
    };
    if path.as_os_str() != "-" {
        super::print(&format!("{}\n", plain(&path.display().to_string())))?;
    }
    let missing = snapshot.dropped_count();
    if missing > 0 {
        let missing = show::count(missing);
        say(format_args!("the oldest {missing} entries are not in it: max_entries"));
    }
    if arguments.remove {
        fs::remove_file(&left.path)
            .map_err(|error| Failure::new(format!("{name} cannot be removed: {error}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the snapshot, and the names of the frames in its stacks.
pub(crate) fn snapshot_of(left: &OrphanedHistory) -> Result<(Snapshot, Names)> {
    let name = left.path.display();
    let damaged = |why: &dyn std::fmt::Display| Failure::new(format!("{name} {why}"));
    let leftover = left.read().map_err(|problem| damaged(&problem))?;
    let restored = persistent::restore(&leftover);
    let does_not_fit = |problem| damaged(&format!("is damaged: {problem}"));
    let Restored { mut snapshot, .. } = restored.map_err(does_not_fit)?;
    let mut progress = None;
    let stacks = snapshot.stacks().filter(|stack| !stack.is_none()).collect();
    let names = Names::of(leftover, stacks, |done, all| {
        progress.get_or_insert_with(|| Progress::new("looking up names", all)).set(done);
    });
    drop(progress);
    snapshot.settings.more.extend(names.build_ids());
    Ok((snapshot, names))
}

/// Finds the file of this name, or the latest one of a process with this number.
fn find(wanted: &Path) -> Result<OrphanedHistory> {
    let number = wanted.to_str().and_then(|text| text.parse::<u32>().ok());
    let Some(number) = number.filter(|_| !wanted.exists()) else {
        return OrphanedHistory::open(wanted).map_err(|error| {
            let what = format!("{} cannot be recovered: {error}", wanted.display());
            Failure::new(what).next("cachealloc recover lists what can be recovered")
        });
    };
    let mut of_process =
        OrphanedHistory::all().into_iter().filter(|left| left.owner.process_id == number);
    let Some(left) = of_process.next() else {
        let what = format!("no process {number} has left a history in {FOLDER}");
        return Err(Failure::new(what)
            .next("only a recording process leaves one: cachealloc run --record")
            .also("cachealloc recover lists what can be recovered"));
    };
    for older in of_process {
        say(format_args!("an earlier process {number} has left {}", older.path.display()));
    }
    Ok(left)
}

fn check_fate(left: &OrphanedHistory) -> Result<()> {
    let number = left.owner.process_id;
    match left.fate() {
        Fate::Gone | Fate::OtherProgram => Ok(()),
        Fate::Lives(process) => {
            let what = format!("process {} is still running and recording", process.0);
            Err(Failure::new(what)
                .next(format!("get a snapshot with: cachealloc snapshot {}", process.0)))
        }
        Fate::Unknown => {
            say(format_args!("whether process {number} still runs cannot be seen from here"));
            Ok(())
        }
    }
}

fn list() -> Result {
    let mut text = String::new();
    for left in OrphanedHistory::all() {
        let fate = match left.fate() {
            Fate::Lives(_) => continue,
            Fate::Gone => "killed",
            Fate::OtherProgram => "is another program now",
            Fate::Unknown => "of another namespace",
        };
        let age = cachealloc_text::age(left.seen.elapsed().unwrap_or_default().as_secs());
        let bytes = show::bytes(left.bytes);
        let (number, path) = (left.owner.process_id, left.path.display().to_string());
        let _ = writeln!(text, "{number:>7}  {fate}, {age} ago, {bytes}  {}", plain(&path));
    }
    if text.is_empty() {
        say(format_args!("no killed process has left a history in {FOLDER}"));
    }
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn file_names(process: u32) -> impl Iterator<Item = PathBuf> {
    let first = format!("cachealloc-{process}-recovered.pickle").into();
    let more =
        (1..).map(move |number| format!("cachealloc-{process}-recovered-{number}.pickle").into());
    std::iter::once(first).chain(more)
}

//! `cachealloc recover`: makes a snapshot from the history that a killed process left.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_history::persistent::{self, Restored};
use cachealloc_history::{Snapshot, write_snapshot};
use cachealloc_text::plain;
use clap::Args;

use super::Result;
use crate::failure::{Failure, say};
use crate::orphans::{Fate, Names, OrphanedHistory};
use crate::processes::OtherNamespaces;
use crate::progress::Progress;
use crate::{output, show};

/// Write a snapshot from the history that a killed process left.
///
/// A recording process keeps its history in a file in /dev/shm and removes it at exit. After
/// kill -9, a crash or the kernel's out-of-memory killer, the file remains, with every entry and
/// the final state of the memory. Only libraries and Python functions first seen in the last second
/// may lack names.
///
/// The file is kept until --remove, or until the next recording program of the user removes it:
/// after a day, or, oldest first, if such files fill a quarter of /dev/shm. Without a process, the
/// command lists the files.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Killed process, or the file it left.
    #[arg(value_name = "PID|FILE")]
    left: Option<PathBuf>,
    /// Output file; default: cachealloc-PID-recovered.pickle, or ...-1.pickle if that exists.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Remove the file that the process left after writing the snapshot.
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
        say(format_args!(
            "the oldest {missing} entries were dropped: raise max_entries to keep more"
        ));
    }
    if arguments.remove {
        fs::remove_file(&left.path)
            .map_err(|error| Failure::new(format!("cannot remove {name}: {error}")))?;
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
            let what = format!("cannot recover {}: {error}", wanted.display());
            Failure::new(what).next("list what can be recovered with: cachealloc recover")
        });
    };
    let mut of_process =
        OrphanedHistory::all().into_iter().filter(|left| left.owner.process_id == number);
    let Some(left) = of_process.next() else {
        let what = format!("process {number} has left no history in {FOLDER}");
        return Err(Failure::new(what)
            .next("only a recording process leaves one: cachealloc run --record")
            .also("list what can be recovered with: cachealloc recover"));
    };
    for older in of_process {
        say(format_args!("an earlier process {number} has left {}", older.path.display()));
    }
    Ok(left)
}

fn check_fate(left: &OrphanedHistory) -> Result<()> {
    let number = left.owner.process_id;
    match left.fate(&OtherNamespaces::default()) {
        Fate::Gone | Fate::OtherProgram => Ok(()),
        Fate::Lives(process) => {
            let what = format!("process {} is still running and recording", process.0);
            Err(Failure::new(what)
                .next(format!("get a snapshot with: cachealloc snapshot {}", process.0)))
        }
        Fate::Unknown => {
            say(format_args!(
                "process {number} may still be running: it belongs to another namespace"
            ));
            Ok(())
        }
    }
}

fn list() -> Result {
    let (mut text, others) = (String::new(), OtherNamespaces::default());
    for left in OrphanedHistory::all() {
        let fate = match left.fate(&others) {
            Fate::Lives(_) => continue,
            Fate::Gone => "killed",
            Fate::OtherProgram => "replaced by another program",
            Fate::Unknown => "of another namespace",
        };
        let age = cachealloc_text::age(left.seen.elapsed().unwrap_or_default().as_secs());
        let bytes = show::bytes(left.bytes);
        let (number, path) = (left.owner.process_id, left.path.display().to_string());
        let _ = writeln!(text, "{number:>7}  {fate}, {age} ago, {bytes}  {}", plain(&path));
    }
    if text.is_empty() {
        say(format_args!("no history of a killed process in {FOLDER}"));
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

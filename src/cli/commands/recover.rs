//! `cachealloc recover`: a snapshot of what a killed process has left.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_history::lasting::{self, Restored};
use cachealloc_history::{Snapshot, StackId, write_snapshot};
use cachealloc_text::plain;
use clap::Args;

use super::Result;
use crate::failure::{Failure, say};
use crate::leftover::{FOLDER, Fate, Left, Names};
use crate::progress::Progress;
use crate::{output, show};

/// Make a snapshot of what a killed process has recorded.
///
/// A process that records keeps its history in a file of /dev/shm, which goes when it ends by itself. After
/// kill -9, a crash or the end of the machine's memory the file is still there: with every entry, and the
/// memory as it was at the last moment. Only libraries and Python functions that the process first met in its
/// last second may lack their names.
///
/// The file stays until --remove, for a day, or until killed processes have left a quarter of /dev/shm; the next
/// program of the user that records then removes the oldest. Without a process this lists what is there.
#[derive(Args)]
pub struct Arguments {
    /// A process that was killed, or the file that it left.
    #[arg(value_name = "PID|FILE")]
    left: Option<PathBuf>,
    /// Where to write; without it to the first of cachealloc-PID-recovered.pickle, ...-1.pickle that is free.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Remove the file that the process left, once the snapshot is written.
    #[arg(long)]
    remove: bool,
}

pub fn run(arguments: Arguments) -> Result {
    let Some(wanted) = &arguments.left else { return list() };
    let left = find(wanted)?;
    check_fate(&left)?;
    let name = left.path.display();
    let damaged = |why: &dyn std::fmt::Display| Failure::new(format!("{name} {why}"));
    let leftover = left.read().map_err(|problem| damaged(&problem))?;
    let restored = lasting::restore(&leftover);
    let does_not_fit = |problem| damaged(&format!("is damaged: {problem}"));
    let Restored { mut snapshot, .. } = restored.map_err(does_not_fit)?;
    let mut progress = None;
    let mut names = Names::of(leftover, stacks_of(&snapshot), |done, all| {
        progress.get_or_insert_with(|| Progress::new("looking up names", all)).set(done);
    });
    drop(progress);
    snapshot.settings.more.extend(names.build_ids());
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
        say(format_args!("the oldest {missing} entries are not in it: max_entries"));
    }
    if arguments.remove {
        fs::remove_file(&left.path)
            .map_err(|error| Failure::new(format!("{name} cannot be removed: {error}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The file that is meant: by its name, or the latest one of a process of this number.
fn find(wanted: &Path) -> Result<Left> {
    let number = wanted.to_str().and_then(|text| text.parse::<u32>().ok());
    let Some(number) = number.filter(|_| !wanted.exists()) else {
        return Left::open(wanted).map_err(|error| {
            let what = format!("{} cannot be recovered from: {error}", wanted.display());
            Failure::new(what).next("cachealloc recover lists what there is")
        });
    };
    let mut of_process = Left::all().into_iter().filter(|left| left.owner.process_id == number);
    let Some(left) = of_process.next() else {
        let what = format!("no process {number} has left a history in {FOLDER}");
        return Err(Failure::new(what)
            .next("only one that records leaves any: cachealloc run --record")
            .also("cachealloc recover lists what there is"));
    };
    for older in of_process {
        say(format_args!("an earlier process {number} has left {}", older.path.display()));
    }
    Ok(left)
}

fn check_fate(left: &Left) -> Result<()> {
    let number = left.owner.process_id;
    match left.fate() {
        Fate::Gone | Fate::OtherProgram => Ok(()),
        Fate::Lives(process) => {
            let what = format!("process {} still runs, and records", process.0);
            Err(Failure::new(what)
                .next(format!("cachealloc snapshot {} has it write one", process.0)))
        }
        Fate::Unknown => {
            say(format_args!("whether process {number} still runs cannot be seen from here"));
            Ok(())
        }
    }
}

fn list() -> Result {
    let mut text = String::new();
    for left in Left::all() {
        let fate = match left.fate() {
            Fate::Lives(_) => continue,
            Fate::Gone => "killed",
            Fate::OtherProgram => "is another program now",
            Fate::Unknown => "of another namespace",
        };
        let age = left.seen.elapsed().unwrap_or_default();
        let age = show::time(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
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

fn stacks_of(snapshot: &Snapshot) -> BTreeSet<StackId> {
    let entries = snapshot.devices.iter().flat_map(|device| &device.entries);
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let segments = snapshot.segments.iter().map(|segment| segment.stack);
    let stacks = entries.map(|entry| entry.stack).chain(blocks.map(|block| block.stack));
    stacks.chain(segments).filter(|stack| !stack.is_none()).collect()
}

//! Random programs of processes (`tests/c/process/random_process.c`) have the same output, files
//! and exit status as without the library, while they request snapshots and statistics, also in
//! random surroundings (`tests/c/process/surroundings.c`). `PROCESS_FIRST=N` begins with another
//! seed, `PROCESS_SEEDS=N` runs more.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cachealloc_tests::{Run, command, compile, has_unnamed_files, library, tier};

use crate::record::snapshots::Place;

const SNAPSHOT: &str = "s.pickle";

#[test]
fn random_processes_do_the_same() {
    judge(tier::count(12, 60), "record:all,log:quiet", "20");
}

/// Without recording, the program's signals are its own, and there is no writer to ask.
#[test]
fn random_processes_do_the_same_unrecorded() {
    judge(tier::count(4, 20), "log:quiet", "12");
}

#[test]
fn random_surroundings_change_nothing() {
    compare(tier::count(12, 60), |seed| {
        let program = Run::c("surroundings.c").native().arg(seed.to_string());
        let program = program.arg(compile("random_process.c"));
        let program = program.arg((seed % 20 + 1).to_string()).arg("8").within(20);
        let under = program.clone().env("PRELOAD", library()).env("ASK", command());
        (program, under.conf(&format!("record:all,log:quiet,snapshot:{SNAPSHOT}")))
    });
}

#[track_caller]
fn judge(count: u64, conf: &str, steps: &str) {
    compare(count, |seed| {
        let program = Run::c("random_process.c").arg(seed.to_string()).arg(steps).within(20);
        let under = program.clone().env("ASK", command());
        (program.native(), under.conf(&format!("{conf},snapshot:{SNAPSHOT}")))
    });
}

/// Compares the two runs of each seed, without the library and with it.
#[track_caller]
fn compare(count: u64, runs: impl Fn(u64) -> (Run, Run)) {
    let first = number("PROCESS_FIRST", 1);
    let count = number("PROCESS_SEEDS", count);
    let (mut failures, mut hung_count) = (String::new(), 0);
    for seed in first..first + count {
        let (without, with) = runs(seed);
        let without = outcome(&without);
        // A program that hangs by itself is not valid.
        if without.starts_with(HUNG) {
            hung_count += 1;
            continue;
        }
        let with = outcome(&with);
        if without != with {
            let _ = writeln!(failures, "seed {seed}, without: {without}\nwith: {with}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(hung_count * 3 < count, "{hung_count} of {count} programs hang without the library");
}

/// Start of `outcome` if the time limit has ended the run.
const HUNG: &str = "Some(137)";

/// Everything that can be seen of a run: its output, its end, and its files.
fn outcome(run: &Run) -> String {
    let place = Place::new();
    let ran = place.run(run);
    let mut text = format!("{:?}\n{}{}{}", ran.code, ran.stdout, ran.stderr, ran.threads);
    list(&place.path, &mut text);
    text
}

fn list(folder: &Path, text: &mut String) {
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == SNAPSHOT || is_left_by_exec(folder, &name) {
            continue;
        }
        let about = fs::metadata(&path).expect("a file");
        let mode = about.permissions().mode();
        match about.is_dir() {
            true => list(&path, text),
            false => {
                let content = fs::read_to_string(&path);
                let _ = writeln!(text, "{name} {mode:o} {content:?}");
            }
        }
    }
}

/// Whether the file is a snapshot that was being written when the process was killed or called
/// `exec`, in a folder whose files need a name.
fn is_left_by_exec(folder: &Path, name: &str) -> bool {
    let is_part = name.starts_with(&format!(".{SNAPSHOT}.")) && name.ends_with(".part");
    is_part && !has_unnamed_files(folder)
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

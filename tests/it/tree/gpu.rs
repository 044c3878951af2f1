//! `scripts/gpu`, which runs programs on a GPU: its suites are documented, and one of them runs on
//! the simulated driver.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use cachealloc_tests::{driver_folder, lacks, library, root, scratch_file};

use crate::ordering::hazards::hazards;

fn gpu(arguments: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.arg(root().join("scripts/gpu")).args(arguments);
    command.output().expect("python3 is installed: see .ci/run")
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// Suites that `scripts/gpu list` prints.
fn suites() -> BTreeSet<String> {
    let listed = gpu(&["list"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let names = text(&listed.stdout);
    names.lines().filter_map(|line| line.split(' ').next()).map(str::to_string).collect()
}

/// Names of the files in a folder of the tree, without the ending of Python's modules.
fn files(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of the tree").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.map(|name| name.trim_end_matches(".py").to_string()).collect()
}

#[test]
fn each_suite_is_listed_and_documented() {
    if lacks("python3") {
        return;
    }
    let suites = suites();
    let modules = files("scripts/gpu_runner/suites");
    let modules = modules.into_iter().filter(|name| !name.starts_with("__")).collect();
    assert_eq!(suites, modules, "listed, and in scripts/gpu_runner/suites");
    let readme = fs::read_to_string(root().join("tests/gpu/README.md")).expect("a document");
    let undocumented: Vec<_> =
        suites.iter().filter(|name| !readme.contains(&format!("\n| `{name}` | "))).collect();
    assert!(undocumented.is_empty(), "tests/gpu/README.md has no row of {undocumented:?}");
}

/// Suites share one option parser.
#[test]
fn there_is_one_entry() {
    let others: Vec<_> =
        files("scripts").into_iter().filter(|name| name.starts_with("gpu-")).collect();
    assert!(others.is_empty(), "suites of scripts/gpu: {others:?}");
}

/// Runs hazards on the simulated driver.
fn run(options: &[&str]) -> (Option<i32>, String) {
    let out = scratch_file("gpu");
    let ran = run_to(out.to_str().expect("a plain path"), options);
    let _ = fs::remove_dir_all(out); // nothing else reads it
    ran
}

fn run_to(out: &str, options: &[&str]) -> (Option<i32>, String) {
    let paths = [library(), driver_folder()];
    let [library, driver] = paths.each_ref().map(|path| path.to_str().expect("a plain path"));
    let own = ["run", "hazards", "--lib", library, "--driver", driver, "--out", out];
    let ran = gpu(&[&own[..], options].concat());
    (ran.status.code(), text(&ran.stdout) + &text(&ran.stderr))
}

#[test]
fn hazards_run_on_the_simulated_driver() {
    if lacks("python3") {
        return;
    }
    let only = "^(pinned_write|free_during_global_capture|fault_then_free)$";
    let (code, table) = run(&["--only", only]);
    let rows = [
        ["program", "native", "strict", "ordered", "relaxed"],
        ["pinned_write", "ok", "ok", "ok", "skipped"],
        ["free_during_global_capture", "skipped", "ok", "ok", "skipped"],
        ["fault_then_free", "ok", "ok", "skipped", "skipped"],
    ];
    for row in rows {
        let is_there = table.lines().any(|line| line.split_whitespace().take(5).eq(row));
        assert!(is_there, "no {row:?}:\n{table}");
    }
    assert_eq!(code, Some(0), "{table}");
}

/// Memory in an arena cannot be exported, so this program differs.
#[test]
fn a_difference_is_a_failure() {
    if lacks("python3") {
        return;
    }
    let options = ["--modes", "strict", "--conf", "expandable_segments:true"];
    let (code, table) = run(&[&options[..], &["--only", "^export_of_neighbours$"]].concat());
    assert!(table.contains("1 programs, 1 differences"), "{table}");
    assert_eq!(code, Some(1), "{table}");
}

#[test]
fn suite_that_cannot_run_is_a_failure() {
    if lacks("python3") {
        return;
    }
    for options in [["--only", "^no_such_program$"], ["--lib", "/no/such/library"]] {
        let (code, said) = run(&options);
        assert_eq!(code, Some(2), "{options:?}: {said}");
    }
    let (code, table) = run(&["--only", "^pinned_write$", "--limit", "0.001"]);
    assert!(table.contains("3 runs not made"), "{table}");
    assert_eq!(code, Some(1), "{table}");
}

/// What an earlier run has made stays, and the table shows it.
#[test]
fn a_run_is_resumed() {
    if lacks("python3") {
        return;
    }
    let (out, resumed) = (scratch_file("gpu_resumed"), "^(pinned_write|double_free)$");
    let with = |only: &str, more: &[&str]| {
        let out = out.to_str().expect("a plain path");
        run_to(out, &[&["--only", only, "--modes", "strict"], more].concat())
    };
    assert_eq!(with("^pinned_write$", &[]).0, Some(0));
    let progress = || fs::read_to_string(out.join("hazards/progress.txt")).expect("a list");
    assert_eq!(progress().lines().count(), 2);
    let (code, table) = with(resumed, &["--resume"]);
    assert!(table.contains("2 programs, 0 differences"), "{table}");
    assert_eq!((code, progress().lines().count()), (Some(0), 4), "{table}");
    // Everything is there.
    let (code, table) = with(resumed, &["--resume", "--limit", "0.001"]);
    assert!(table.contains("2 programs, 0 differences"), "{table}");
    assert_eq!(code, Some(0), "{table}");
    let other = root().join("Cargo.toml");
    let (code, said) = with(resumed, &["--resume", "--lib", other.to_str().expect("a plain path")]);
    assert!(said.contains("another library"), "{said}");
    assert_eq!(code, Some(2));
    let _ = fs::remove_dir_all(&out); // nothing else reads it
}

/// Also if the others belong to a suite that another command runs.
#[test]
fn a_case_that_runs_alone_waits_for_others() {
    const SHARES: &str = "
import fcntl, sys
from pathlib import Path
from gpu_runner.compare import DEVICE, device
build = Path(sys.argv[1])
def free(kind):
    with (build / DEVICE).open('w') as lock:
        try:
            return not fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
for alone in (False, True):
    with device(build, alone):
        print(free(fcntl.LOCK_SH), free(fcntl.LOCK_EX))
print(free(fcntl.LOCK_EX))
";
    if lacks("python3") {
        return;
    }
    let folder = scratch_file("gpu_device");
    fs::create_dir_all(&folder).expect("a scratch folder");
    let mut python = Command::new("python3");
    python.args(["-c", SHARES]).arg(&folder).env("PYTHONPATH", root().join("scripts"));
    let ran = python.output().expect("python3 runs");
    let said = text(&ran.stdout);
    assert_eq!(said, "True False\nFalse False\nTrue\n", "{}", text(&ran.stderr));
    let _ = fs::remove_dir_all(&folder); // nothing else reads it
}

/// The packed folder has all that it needs, wherever it is.
#[test]
fn a_packed_folder_runs_without_the_tree() {
    if lacks("python3") {
        return;
    }
    let (folder, library) = (scratch_file("packed"), library());
    let path = |path: &Path| path.to_str().expect("a plain path").to_string();
    let packed = gpu(&["pack", &path(&folder), "--lib", &path(&library)]);
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    let driver = folder.join("bin/simulated");
    let ran = Command::new("python3")
        .arg(folder.join("scripts/gpu"))
        .args(["run", "hazards", "--driver", &path(&driver), "--only", "^pinned_write$"])
        .env("CARGO_TARGET_DIR", "/no/such/folder")
        .current_dir("/")
        .output()
        .expect("python3 is installed: see .ci/run");
    let table = text(&ran.stdout) + &text(&ran.stderr);
    assert!(table.contains("1 programs, 0 differences"), "{table}");
    assert_eq!(ran.status.code(), Some(0), "{table}");
    let _ = fs::remove_dir_all(folder); // nothing else reads it
}

/// Each row of `tests/gpu/hazards.txt` is about a program that exists.
#[test]
fn listed_hazards_exist() {
    let names: BTreeSet<String> = hazards().into_iter().map(|hazard| hazard.name).collect();
    let list = fs::read_to_string(root().join("tests/gpu/hazards.txt")).expect("a list");
    let rows = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for row in rows {
        let mut words = row.split_whitespace();
        let (name, word) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        assert!(names.contains(name) || name.starts_with("answers-"), "no hazard {name}");
        assert!(["simulated", "ours", "alone"].contains(&word), "{row}");
        assert!(words.next().is_some(), "no reason: {row}");
    }
}

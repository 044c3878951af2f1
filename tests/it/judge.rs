//! Random programs, each judged by a plain native run of itself (`tests/programs/judge`), and those
//! that once showed a difference, as small as they could be made.
//!
//! `JUDGE_SEEDS=A..B` runs others, `JUDGE_THEME` only one theme.

use std::path::Path;
use std::process::{Command, Output};

use cachealloc_tests::{driver_folder, library, root};

const SEEDS: &str = "1..25";
const JOBS: &str = "2";

/// Programs of every theme, in every mode: what counts natively is the same under the library.
#[test]
fn random_programs_are_the_same() {
    let said = |name: &str, default: &str| std::env::var(name).unwrap_or(default.into());
    let (seeds, theme) = (said("JUDGE_SEEDS", SEEDS), said("JUDGE_THEME", "all"));
    let ran = judge(&["run", "--seeds", &seeds, "--theme", &theme, "--jobs", JOBS]);
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    if seeds == SEEDS && theme == "all" {
        let (valid, dropped) = counts(&text);
        // A generator that makes nonsense judges nothing.
        assert!(valid > 100 && dropped * 10 < valid * 3, "{text}");
    }
}

/// What was found once, and is mended.
#[test]
fn programs_that_differed_once_are_the_same() {
    let programs = judged("");
    assert!(!programs.is_empty() || !judged("open").is_empty(), "tests/data/judged is empty");
    if programs.is_empty() {
        return;
    }
    let files: Vec<&str> = programs.iter().map(String::as_str).collect();
    let ran = judge(&[&["check"], files.as_slice()].concat());
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
}

/// What is not mended yet still differs: a mend moves the program to the others, and takes its row
/// off the list in `generate/known.rs`.
#[test]
fn programs_that_still_differ_do() {
    for program in judged("open") {
        let ran = judge(&["check", &program]);
        assert!(!ran.status.success(), "{program} is the same now: move it");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(text.contains(": under "), "{text}");
    }
}

fn judge(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_judge"))
        .args(words)
        .arg("--lib")
        .arg(library())
        .arg("--driver")
        .arg(driver_folder())
        .output()
        .expect("the judge starts")
}

fn judged(folder: &str) -> Vec<String> {
    let folder = root().join("tests/data/judged").join(folder);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_program = |path: &Path| path.extension().is_some_and(|extension| extension == "txt");
    let mut programs: Vec<String> =
        paths.filter(|path| is_program(path)).map(|path| path.display().to_string()).collect();
    programs.sort();
    programs
}

/// Programs that were judged, and programs that were not valid.
fn counts(text: &str) -> (u64, u64) {
    let line = text.lines().find(|line| line.contains("programs not valid")).expect("a summary");
    let words: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| words[index].parse().expect("a number");
    (number(0), number(4))
}

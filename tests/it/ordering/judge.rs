//! Random programs, each compared with a run of itself without the library
//! (`tests/programs/judge`), and programs that once showed a difference, shrunk as far as possible.
//!
//! `JUDGE_SEEDS=A..B` runs other seeds, `JUDGE_THEME` only one theme, and `JUDGE_WITHOUT=a,b` omits
//! these actions.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{driver_folder, library, root, scratch_file, tier};

/// Seeds of each theme, in the fast tier and in the long one.
const SEEDS: [&str; 2] = ["8..9", "8..16"];
const JOBS: &str = "2";
const TRIES: usize = 40;

/// Programs that once differed; those in `OPEN` still do.
const JUDGED: &str = "tests/data/judged";
const OPEN: &str = "tests/data/judged/open";

/// Programs of every theme, in every mode: the lines that count are the same under the library.
#[test]
fn random_programs_are_the_same() {
    let said = |name: &str, default: &str| std::env::var(name).unwrap_or(default.into());
    let usual = tier::count(SEEDS[0], SEEDS[1]);
    let (seeds, theme) = (said("JUDGE_SEEDS", usual), said("JUDGE_THEME", "all"));
    let without = said("JUDGE_WITHOUT", "");
    let what = ["--seeds", &seeds, "--theme", &theme, "--without", &without];
    let ran = judge(&[&["run", "--jobs", JOBS], &what[..]].concat());
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    if seeds == usual && theme == "all" {
        let (valid, dropped) = counts(&text);
        // A generator of mostly invalid programs tests nothing.
        assert!(valid > tier::count(10, 100) && dropped * 10 < valid * 3, "{text}");
    }
}

/// On a GPU nothing is simulated, and some lines do nothing. A program that logs such a line in the
/// simulation looks as if that line depended on time, and is never judged.
#[test]
fn programs_are_valid_on_a_gpu() {
    for (theme, seeds) in [("all", "1..2"), ("pools", "3..6")] {
        let ran = Command::new(env!("CARGO_BIN_EXE_judge"))
            .args(["run", "--gpu", "--jobs", JOBS, "--theme", theme, "--seeds", seeds, "--lib"])
            .args([library().as_os_str(), "--driver".as_ref(), driver_folder().as_os_str()])
            .env("LD_LIBRARY_PATH", driver_folder())
            .env("CUDA_VISIBLE_DEVICES", "0")
            .output()
            .expect("the judge starts");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
        let mut reasons = text.lines().filter(|line| line.starts_with("  not valid"));
        // A GPU has more memory than some programs expect.
        let skipped = reasons.find(|line| line.contains("the code of") && !line.contains("alloc_"));
        assert_eq!(skipped, None, "{text}");
        assert!(counts(&text).0 > 2, "{text}");
    }
}

/// Programs whose difference was found and fixed.
#[test]
fn programs_that_differed_once_are_the_same() {
    let open = root().join(OPEN);
    let mut programs = judged(&root().join(JUDGED));
    programs.retain(|program| !Path::new(program).starts_with(&open));
    assert!(!programs.is_empty(), "{JUDGED} is empty");
    let files: Vec<&str> = programs.iter().map(String::as_str).collect();
    let ran = judge(&[&["check"], files.as_slice()].concat());
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
}

/// With the rule of its fix switched off, such a program differs again.
#[test]
fn programs_differ_without_their_rule() {
    const TABLE: &[(Rule, &str)] = &[
        (Rule::BeginIsNoEnd, "captures/neighbour_of_a_named_block"),
        (Rule::LeftEndsWithContext, "contexts/context_ends_beside_a_pass"),
        (Rule::BeginIsNoEnd, "captures/neighbour_of_the_driver_s_memory"),
        (Rule::FreeMemoryQueryWaits, "queries/told_behind_a_free"),
        (Rule::PiecesAreAwaited, "scarce_memory/pieces_of_two_streams"),
        (Rule::PrivateByBlock, "captures/beside_a_block_of_a_graph"),
        (Rule::UnreferencedLeavesPool, "captures/capture_memory_freed_on_a_stream"),
        (Rule::AssumedOverWhereShort, "scarce_memory/freed_plainly_is_free"),
        (Rule::HeldLeavesWithCapture, "captures/graph_memory_freed_before_a_capture"),
        (Rule::UnusedIsFilledAtOnce, "fill_and_red_zones/filled_and_freed_plainly"),
        (Rule::GreenIsEnteredByPrimary, "contexts/green_context_that_is_gone"),
        (Rule::ElsewhereOutlastsBarrier, "contexts/freed_on_a_stream_elsewhere"),
        (Rule::StreamElsewhereTags, "contexts/used_on_a_stream_elsewhere"),
        (Rule::NewestFreeFirst, "scarce_memory/older_of_two_freed_blocks"),
        (Rule::ZonesAreCopied, "fill_and_red_zones/zone_behind_a_kernel_that_waits"),
    ];
    for (rule, name) in TABLE {
        let program = root().join(format!("{JUDGED}/{name}.txt")).display().to_string();
        // If the driver reports completion late, the program does not differ each time.
        let differs = |_| {
            let ran = judge(&["check", &program, "--break", rule.name()]);
            String::from_utf8_lossy(&ran.stdout).contains(": under ")
        };
        assert!((0..TRIES).any(differs), "{name} is the same without {}", rule.name());
    }
}

/// Programs whose difference is not fixed yet still differ: a fix moves the program to the others.
#[test]
fn programs_that_still_differ_do() {
    for program in judged(&root().join(OPEN)) {
        let ran = judge(&["check", &program]);
        assert!(!ran.status.success(), "{program} is the same now: move it");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(text.contains(": under "), "{text}");
    }
}

/// A played program that crashes says where: by that the judge recognizes crashes of the driver.
#[test]
fn a_crash_names_its_place() {
    let signals = [("SEGV", libc::SIGSEGV), ("FPE", libc::SIGFPE), ("ABRT", libc::SIGABRT)];
    for (name, signal) in signals {
        let (program, log) = (scratch_file("program"), scratch_file("log"));
        std::fs::write(&program, "theme own seed 1 memory_mb 0\n").expect("it is written");
        let play = Command::new(env!("CARGO_BIN_EXE_judge"))
            .args(["play".as_ref(), program.as_os_str(), "--log".as_ref(), log.as_os_str()])
            .env("LD_LIBRARY_PATH", driver_folder())
            .env("SIM_PAUSE_MS", "cuDevicePrimaryCtxRetain@1=60000")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the judge starts");
        while !log.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = Command::new("kill").args([format!("-{name}"), play.id().to_string()]).status();
        assert!(kill.expect("kill").success());
        let ran = play.wait_with_output().expect("a child of this process");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.signal(), Some(signal), "{said}");
        let place = said.lines().find_map(|line| line.strip_prefix("judge: crashed at "));
        assert!(place.is_some_and(|place| place.starts_with("libc.so.6+0x")), "{name}: {said}");
    }
}

/// Each function by which a program changes something is called by the judge's programs, or listed
/// with the reason why not.
#[test]
fn each_function_is_judged_or_has_a_reason() {
    let text = |path: &str| std::fs::read_to_string(root().join(path)).expect("a table");
    let functions = text("src/preload/functions.csv");
    let rows = functions.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    // Each row has the symbol that programs request, and the class.
    let named = |row: Vec<&str>| {
        let base = if row[1].is_empty() { row[0] } else { row[1] };
        (row[0].to_string(), (base.to_string(), row[5].to_string()))
    };
    let symbols: BTreeMap<String, (String, String)> = rows.map(named).collect();
    let ran = judge(&["made", "--seeds", "1..13"]);
    let made = String::from_utf8_lossy(&ran.stdout).into_owned();
    let made: BTreeSet<&str> =
        made.lines().filter_map(|symbol| Some(symbols.get(symbol)?.0.as_str())).collect();
    let reasons = text("tests/data/unjudged.csv");
    let reasons: BTreeSet<&str> =
        reasons.lines().skip(1).filter_map(|line| Some(line.split_once(',')?.0)).collect();
    let all: BTreeSet<&str> = symbols
        .values()
        .filter(|(_, class)| class != "pass")
        .map(|(base, _)| base.as_str())
        .collect();
    let unknown: Vec<_> =
        all.iter().filter(|n| !made.contains(*n) && !reasons.contains(*n)).collect();
    assert!(unknown.is_empty(), "neither judged nor in tests/data/unjudged.csv: {unknown:?}");
    let judged: Vec<_> = reasons.intersection(&made).collect();
    assert!(judged.is_empty(), "judged by now, though in tests/data/unjudged.csv: {judged:?}");
    let wrong: Vec<_> = reasons.difference(&all).collect();
    assert!(wrong.is_empty(), "no such functions: {wrong:?}");
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

/// Returns the programs in this folder and in those inside it.
fn judged(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut programs = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            programs.extend(judged(&path));
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            programs.push(path.display().to_string());
        }
    }
    programs.sort();
    programs
}

/// Returns the number of judged programs, and of programs that were not valid.
fn counts(text: &str) -> (u64, u64) {
    let line = text.lines().rfind(|line| line.contains("programs not valid")).expect("a summary");
    let words: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| words[index].parse().expect("a number");
    (number(0), number(4))
}

//! Random programs, without the library and in every mode: no kernels race, and every word is
//! right. `RANDOM_SEEDS=N` runs more of them; `RANDOM_FIRST=N` begins elsewhere.

use std::fmt::Write;

use cachealloc_tests::{Ran, Run, tier};

use crate::ordering::hazards::problems;

#[test]
fn natively_clean() {
    check(None, "full");
    check(None, "own");
}

#[test]
fn ordered() {
    check(Some("ordered"), "full");
}

#[test]
fn strict() {
    check(Some("strict"), "full");
}

/// These programs order their own streams, and do not rely on frees.
#[test]
fn relaxed() {
    check(Some("relaxed"), "own");
}

/// Segments grow and shrink, and on a small device memory moves from one address to another.
#[test]
fn expandable() {
    check(Some("ordered,expandable_segments:true"), "full");
    check(Some("relaxed,expandable_segments:true"), "own");
}

/// Small and large requests from one chunk, every request from the driver, and a limit in both
/// cases.
#[test]
fn strategies() {
    let chunks = "strategy:pre_allocate,initial_gpu_memory_in_mb:64,reallocate_gpu_memory_in_mb:16";
    check(Some(&format!("ordered,{chunks}")), "full");
    check(Some(&format!("relaxed,{chunks},gpu_memory_limit_mb:160")), "own");
    check(Some("ordered,gpu_memory_limit_mb:160"), "full");
    check(Some("ordered,fraction_of_gpu_memory_to_use:0"), "full");
    check(Some("ordered,cache:false"), "full");
}

const OPS: u64 = 400;
const THREADS_MAX: u64 = 3;

fn check(mode: Option<&str>, frees: &str) {
    let mut failures = String::new();
    let first = number("RANDOM_FIRST", 1);
    for seed in first..first + number("RANDOM_SEEDS", tier::count(40, 1_000)) {
        let run = program(seed, frees);
        let ran = match mode {
            None => run.native().env("SIM_FREES_JUDGED", "1").output(),
            Some(mode) => run.conf(&format!("free_mode:{mode}")).output(),
        };
        if let Some(problem) = problem(&ran) {
            writeln!(failures, "{seed} {OPS} {} {frees}: {problem}", threads(seed)).unwrap();
        }
    }
    assert!(failures.is_empty(), "in mode {mode:?}:\n{failures}");
}

pub fn program(seed: u64, frees: &str) -> Run {
    Run::program(env!("CARGO_BIN_EXE_random"))
        .arg(seed.to_string())
        .arg(OPS.to_string())
        .arg(threads(seed).to_string())
        .arg(frees)
        .env("SIM_MEMORY_MB", if seed.is_multiple_of(4) { "192" } else { "1024" })
}

/// What is wrong, if anything.
pub fn problem(ran: &Ran) -> Option<String> {
    let problems = problems(ran);
    let wrong =
        ran.code != Some(0) || !problems.is_empty() || ran.stderr.contains("caching is off");
    wrong.then(|| format!("{:?} {problems:?}", (ran.stdout.trim(), ran.stderr.lines().next())))
}

fn threads(seed: u64) -> u64 {
    1 + seed % THREADS_MAX
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}?")))
}

//! `cuGetProcAddress`: the same answers as the driver's, with the library's functions in place of
//! the driver's.

use std::collections::BTreeSet;
use std::fs;

use cachealloc_tests::{Run, driver_of_version, root};

fn ask() -> Run {
    Run::c("resolve.c").arg(root().join("src/preload/functions.csv"))
}

/// Queries every base name with each of its versions, adjacent versions, and all flags, in both
/// forms and by `dlsym`. The pointer is the export of the symbol that the driver's own answer
/// means, and code and status are the driver's.
#[test]
fn every_answer_means_the_same_symbol() {
    for version in [13_050, 13_000, 12_050, 12_000, 11_040] {
        let run = ask().driver(driver_of_version(version));
        let run = run.env("SIM_DRIVER_VERSION", version.to_string());
        let native = run.clone().native().output().ok();
        let ours = run.output().ok();
        let lines = native.stdout.lines().zip(ours.stdout.lines());
        for (native, ours) in lines {
            assert_eq!(native, ours, "driver {version}");
        }
        assert_eq!(native.stdout.len(), ours.stdout.len());
    }
}

/// A hooked function is the library's in whatever way it was found; any other function is the
/// driver's own.
#[test]
fn only_hooked_functions_resolve_to_the_library() {
    let exports = fs::read_to_string(root().join("tests/data/exports.txt")).expect("exports.txt");
    let exports: BTreeSet<&str> = exports.lines().collect();
    let ran = ask().arg("file").output().ok();
    let mut seen = 0;
    for line in ran.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., symbol, file] = words[..] else { panic!("{line}") };
        if file == "null" {
            continue;
        }
        let wanted = if exports.contains(symbol) { "libcachealloc.so" } else { "libcuda.so.1" };
        assert_eq!(file, wanted, "{line}");
        seen += 1;
    }
    assert!(seen > 10_000, "only {seen} answers were seen");
}

#[test]
fn switched_off_the_resolver_returns_native_pointers_only() {
    let run = ask().arg("file");
    let native = run.clone().native().output().ok();
    let ours = run.env("CACHEALLOC", "0").output().ok();
    assert_eq!(native.stdout, ours.stdout);
    assert!(!ours.stdout.contains("libcachealloc"));
}

/// The test programs request the functions that they get: of a base name's versions, the driver
/// returns the newest that is not newer than the requested one.
#[test]
fn programs_request_the_newest_fitting_version() {
    let text = |path: &str| fs::read_to_string(root().join(path)).expect(path);
    let list = text("src/preload/functions.csv");
    let rows: Vec<Vec<&str>> = list.lines().skip(1).map(|row| row.split(',').collect()).collect();
    let given = |base: &str, version: u32| {
        let of_base = rows.iter().filter(|row| row[1] == base && row[3] == "0");
        let versions = of_base.filter_map(|row| Some((row[2].parse::<u32>().ok()?, row[0])));
        versions.filter(|(known, _)| *known <= version).max().map(|(_, symbol)| symbol)
    };
    let asked = text("tests/programs/functions.rs");
    let asked = asked.lines().filter_map(|line| {
        let (base, rest) = line.trim().split_once(" = \"")?;
        let (symbol, rest) = rest.split_once("\" ")?;
        let version = rest.split(' ').next()?.parse::<u32>().ok()?;
        Some((base, symbol, version))
    });
    let asked: Vec<_> = asked.collect();
    assert!(asked.len() > 100, "the list was not read: {asked:?}");
    for (base, symbol, version) in asked {
        assert_eq!(given(base, version), Some(symbol), "{base} at {version}");
    }
}

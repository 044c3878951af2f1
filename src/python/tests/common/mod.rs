//! Runs programs in each interpreter of this machine.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../../../tests/interpreters.rs"]
mod found;
#[path = "../../../../tests/skip.rs"]
mod skip;

pub use found::interpreters;
pub use skip::skipped;

/// The library of `examples/probe.rs`.
pub fn probe() -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let library = tests.ancestors().nth(2).unwrap().join("examples/libprobe.so");
    if !library.exists() {
        skipped("the example is not built (it is by `cargo test` without a filter)");
        return None;
    }
    Some(library)
}

/// Runs a program of `fixtures` in every interpreter; its last output must be `done`. Returns the
/// output before that of each.
pub fn run(program: &str) -> Vec<(String, String)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let Some(probe) = probe() else { return Vec::new() };
    let interpreters = interpreters();
    if interpreters.is_empty() {
        skipped("there is no Python");
    }
    let mut outputs = Vec::new();
    let mut failures = Vec::new();
    for interpreter in interpreters {
        let output = Command::new(&interpreter.executable)
            .arg("-B")
            .arg(fixtures.join(program))
            .env("PROBE", &probe)
            .env("PYTHONIOENCODING", "utf-8")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && printed.contains("done\n") {
            outputs.push((interpreter.version, printed));
        } else {
            let tail: Vec<&str> = errors.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            failures.push(format!(
                "-- {} {program}: {}\n{printed}{}",
                interpreter.version,
                output.status,
                tail.join("\n")
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    outputs
}

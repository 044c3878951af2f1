//! The interpreters of this machine, and programs that run in each of them.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "../../../../tests/skip.rs"]
mod skip;

pub use skip::skipped;

pub const KNOWN: [&str; 9] =
    ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "3.13t", "3.14t"];

/// A `t` behind the number: built without the interpreter's lock.
const VERSION: &str = "import ctypes, sys; free = 'free-threading' in sys.version; \
    print('%d.%d.%d' % sys.version_info[:3] + free * 't')";

pub struct Interpreter {
    pub executable: PathBuf,
    /// Major, minor and patch level.
    pub version: String,
}

/// Each version once: those of pyenv, those that `PYTHONS` names, then what is on the path.
pub fn interpreters() -> Vec<Interpreter> {
    let mut candidates = Vec::new();
    if let Ok(root) = Command::new("pyenv").arg("root").output() {
        let versions = Path::new(String::from_utf8_lossy(&root.stdout).trim()).join("versions");
        for version in versions.read_dir().into_iter().flatten().flatten() {
            candidates.push(version.path().join("bin/python3"));
        }
    }
    for interpreter in std::env::var("PYTHONS").iter().flat_map(|list| list.split_whitespace()) {
        candidates.push(interpreter.into());
    }
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        // pyenv's stand-ins are not interpreters, and which one they start is not theirs to say.
        if !folder.ends_with("shims") {
            candidates.push(folder.join("python3"));
            candidates.extend(KNOWN.map(|version| folder.join(format!("python{version}"))));
        }
    }
    let mut found = BTreeMap::new();
    for executable in candidates {
        let version = Command::new(&executable).args(["-c", VERSION]).output();
        if let Ok(Output { status, stdout, .. }) = version
            && status.success()
        {
            let version = String::from_utf8_lossy(&stdout).trim().to_owned();
            if KNOWN.contains(&minor(&version).as_str()) {
                found.entry(version).or_insert(executable);
            }
        }
    }
    let tested: Vec<&String> = found.keys().collect();
    let missing = KNOWN.iter().filter(|known| !found.keys().any(|it| minor(it) == **known));
    eprintln!("interpreters: {tested:?}; missing: {:?}", missing.collect::<Vec<_>>());
    let interpreter = |(version, executable)| Interpreter { executable, version };
    found.into_iter().map(interpreter).collect()
}

/// `3.12.1` -> `3.12`, `3.14.4t` -> `3.14t`.
fn minor(version: &str) -> String {
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    minor.to_owned() + if version.ends_with('t') { "t" } else { "" }
}

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

/// Runs a program of `fixtures` in every interpreter; it must print `done` last. Returns what each
/// printed before.
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

//! The Python interpreters of this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const KNOWN: [&str; 9] =
    ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "3.13t", "3.14t"];

/// The version, with the suffix `t` for a build without the interpreter's lock.
const VERSION: &str = "import ctypes, sys; free = 'free-threading' in sys.version; \
    print('%d.%d.%d' % sys.version_info[:3] + free * 't')";

pub struct Interpreter {
    pub executable: PathBuf,
    /// Major, minor and patch level.
    pub version: String,
}

/// Returns each version once: those of pyenv, those in `PYTHONS`, then those on the path.
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
        // pyenv's shims are not interpreters, and do not determine which one they start.
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

//! Checks a program's environment: the variables it would inherit, `/dev/shm`, and a container.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_options::{ProblemKind, of_others};
use cachealloc_text::bytes;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::finding::{Finding, Severity};
use crate::launch::elf::Elf;
use crate::launch::program;
use crate::launch::settings::VARIABLE;
use crate::live::LIBRARY_NAME;

/// With less free space, most of the recorded history does not fit there.
const SHARED_FREE_LEAST: u64 = 16 << 20;
/// Files whose presence indicates a container.
const OF_CONTAINERS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

pub(super) fn examine(program: Option<&OsString>) -> Vec<Finding> {
    let mut findings = settings(program);
    findings.extend(others_settings());
    let others = [off(), other_libraries(), memory_checker(), shared(), container()];
    findings.extend(others.into_iter().flatten());
    findings.extend(lookups());
    findings
}

fn note(subject: &'static str, text: impl Into<String>) -> Finding {
    Finding::new(Severity::Note, subject, text)
}

fn off() -> Option<Finding> {
    env::var_os("CACHEALLOC").filter(|value| value == "0")?;
    let text = "CACHEALLOC=0 is set: the library is disabled; unset it";
    Some(Finding::new(Severity::Fail, "settings", text))
}

/// Reports errors in the variable, and whether it selects this program.
fn settings(program: Option<&OsString>) -> Vec<Finding> {
    let Some(text) = env::var_os(VARIABLE) else { return Vec::new() };
    let (config, problems) = cachealloc_options::parse(&text.to_string_lossy());
    let mut findings: Vec<Finding> = problems
        .iter()
        .map(|problem| match problem.kind {
            ProblemKind::NoEffect { .. } => note("settings", problem.to_string()),
            _ => note("settings", format!("{VARIABLE}: {problem}")),
        })
        .collect();
    // For a script, the interpreter's name counts, because that is the process's file.
    let file = program.and_then(|program| program::executable(program).ok());
    let file = file.map(|file| std::fs::canonicalize(&file).unwrap_or(file));
    let name = file.as_deref().and_then(Path::file_name).map(OsStr::to_string_lossy);
    if let Some(name) = name.filter(|name| !config.programs.include(name)) {
        let text = format!("`only` or `except` in {VARIABLE} excludes {name}");
        findings.push(Finding::new(Severity::Fail, "settings", text));
    }
    findings
}

/// Lists libraries that the loader puts into every process, after those of the variable.
const OF_THE_SYSTEM: &str = "/etc/ld.so.preload";

/// Reports libraries that interpose `dlsym`, as overlays, remote displays and GPU sharing tools do.
fn in_front_of_lookups(named: &[&Path], of_system: &[&Path]) -> Vec<Finding> {
    let is_ours = |path: &Path| path.file_name() == Some(OsStr::new(LIBRARY_NAME));
    let own_place = named.iter().position(|path| is_ours(path));
    let exports = |path: &Path, symbol: &str| {
        Elf::read(path).ok().flatten().is_some_and(|elf| elf.exports(symbol))
    };
    let all = named.iter().enumerate().map(|(place, path)| (place, *path));
    let all = all.chain(of_system.iter().map(|path| (usize::MAX, *path)));
    all.filter(|(_, path)| !is_ours(path) && exports(path, "dlsym"))
        .map(|(place, path)| {
            let takes = exports(path, "cuMemAlloc_v2") || exports(path, "cuGetProcAddress_v2");
            let path = path.display();
            match (own_place.is_some_and(|own| place < own), takes) {
                (true, true) => note("preload", format!(
                    "{path} comes before the library and intercepts driver calls: the library does not see them, and a limit \
                     does not include cached memory; list the library first"
                )),
                (true, false) => note("preload", format!(
                    "{path} comes before the library and intercepts `dlsym`: programs may get the driver's own \
                     functions; list the library first"
                )),
                (false, true) => note("preload", format!(
                    "{path} intercepts driver calls after the library: it sees the requests of the cache, and a limit includes \
                     cached memory"
                )),
                (false, false) => {
                    note("preload", format!("{path} intercepts `dlsym` after the library"))
                }
            }
        })
        .collect()
}

fn paths(list: &[u8]) -> Vec<&Path> {
    let separators = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let named = list.split(separators).filter(|path| !path.is_empty());
    named.map(|path| Path::new(OsStr::from_bytes(path))).collect()
}

fn lookups() -> Vec<Finding> {
    let preload = env::var_os("LD_PRELOAD").unwrap_or_default();
    let of_system = std::fs::read(OF_THE_SYSTEM).unwrap_or_default();
    in_front_of_lookups(&paths(preload.as_bytes()), &paths(&of_system))
}

fn other_libraries() -> Option<Finding> {
    let preload = env::var_os("LD_PRELOAD").filter(|list| !list.is_empty())?;
    let named = paths(preload.as_bytes()).into_iter();
    let (ours, others): (Vec<&Path>, Vec<&Path>) =
        named.partition(|path| path.file_name() == Some(OsStr::new(LIBRARY_NAME)));
    let mut parts = Vec::new();
    if !ours.is_empty() {
        parts.push("LD_PRELOAD already contains the library".to_string());
    }
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
        let others = others.join(", ");
        parts
            .push(format!("LD_PRELOAD contains {others}: `cachealloc run` puts the library first"));
    }
    Some(note("preload", parts.join("; ")))
}

/// Reports settings of other allocators, which the library does not read.
fn others_settings() -> Vec<Finding> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let mut variables: Vec<_> =
        env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    variables.sort();
    let lines = variables.iter().filter_map(|(name, value)| of_others(name, value));
    lines.map(|line| note("settings", line)).collect()
}

fn memory_checker() -> Option<Finding> {
    env::var_os("NV_SANITIZER_INJECTION_PORT_BASE")?;
    Some(note("checker", "the library is disabled under compute-sanitizer"))
}

fn shared() -> Option<Finding> {
    let lost = "`top`, `stats` and `recover` cannot work, and recorded history is lost in a crash";
    let Ok(room) = statvfs(FOLDER) else {
        return Some(note("shm", format!("there is no {FOLDER}: {lost}")));
    };
    if access(FOLDER, AccessFlags::W_OK).is_err() {
        return Some(note("shm", format!("{FOLDER} cannot be written: {lost}")));
    }
    let (free, all) =
        [room.blocks_available(), room.blocks()].map(|blocks| blocks * room.fragment_size()).into();
    match free < SHARED_FREE_LEAST {
        true => Some(note("shm", format!("{FOLDER} has {} free of {}", bytes(free), bytes(all)))),
        false => None,
    }
}

fn container() -> Option<Finding> {
    let is_one = OF_CONTAINERS.iter().any(|file| Path::new(file).exists());
    let is_one = is_one || env::var_os("container").is_some_and(|value| !value.is_empty());
    is_one.then(|| {
        let text = "a container: on the host, root can use `cachealloc stats PID`";
        note("container", text)
    })
}

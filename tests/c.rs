//! The C and C++ programs of `tests/c`, whose folders match those of `tests/it`. They are compiled
//! once into `target/tests-c`, and again when their source or a header there changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use crate::{root, scratch_file, target_folder};

/// Compiles a program of `tests/c` and returns it.
pub fn compile(source: &str) -> PathBuf {
    let name = source.trim_end_matches(".c").trim_end_matches(".cpp");
    build(source, name, &["-ldl", "-lpthread"])
}

/// Compiles a program of `tests/c` with more flags, under another name.
pub fn compile_with(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    build(source, name, &[flags, &["-ldl", "-lpthread"]].concat())
}

/// Compiles a source of `tests/c` into a shared object in a separate folder: `<folder>/<name>`.
pub fn compile_library(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let mut all = vec!["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"];
    all.extend(flags);
    let soname = format!("-Wl,-soname,{}", name.rsplit('/').next().expect("never empty"));
    all.push(&soname);
    build(source, name, &all)
}

/// Returns the file with this name in a folder of `tests/c`.
pub fn source(name: &str) -> PathBuf {
    let found = folders().map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("tests/c has no {name}"))
}

/// Makes `folder/name` a link to `target`, even while another thread does the same.
pub fn link(folder: &Path, name: &str, target: &Path) {
    fs::create_dir_all(folder).expect("target/ is writable");
    match std::os::unix::fs::symlink(target, folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{name}: {error}"),
        _ => {}
    }
}

fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    // Two tests that find the same program outdated must not replace it one after the other: the
    // first may be running it.
    static BUILDING: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let of_name = {
        let mut building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        building.entry(name.to_string()).or_default().clone()
    };
    let _building = of_name.lock().unwrap_or_else(PoisonError::into_inner);
    let file = self::source(source);
    let made = target_folder().join("tests-c").join(name);
    let kept_flags = made.with_extension("flags");
    let flags_text = flags.join(" ");
    let same_flags = fs::read_to_string(&kept_flags).is_ok_and(|kept| kept == flags_text);
    if same_flags && !is_older(&made, file.clone()) {
        return made;
    }
    fs::create_dir_all(made.parent().expect("it has a folder")).expect("target/ is writable");
    // Renamed when complete, because another test may use it at the same time.
    let draft = scratch_file("draft");
    let (compiler, language) = match source.ends_with(".cpp") {
        true => ("g++", "-std=gnu++17"),
        false => ("gcc", "-std=gnu11"),
    };
    let output = Command::new(compiler)
        .args([language, "-O1", "-g", "-Wall", "-Werror", "-o"])
        .arg(&draft)
        .arg(&file)
        .args(flags)
        .output()
        .expect("gcc is installed: see .ci/run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source} does not compile:\n{said}");
    fs::rename(&draft, &made).expect("target/ is writable");
    fs::write(kept_flags, flags_text).expect("target/ is writable");
    made
}

fn is_older(made: &Path, source: PathBuf) -> bool {
    let Ok(time) = modified(made) else { return true };
    let headers = folders().flat_map(|folder| files(&folder));
    let headers = headers.filter(|path| path.extension() == Some("h".as_ref()));
    headers.chain([source]).any(|path| modified(&path).is_ok_and(|changed| changed > time))
}

/// Returns `tests/c` and the folders in it.
fn folders() -> impl Iterator<Item = PathBuf> {
    let all = root().join("tests/c");
    files(&all).into_iter().filter(|path| path.is_dir()).chain([all])
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("tests/c exists").flatten().map(|entry| entry.path()).collect()
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

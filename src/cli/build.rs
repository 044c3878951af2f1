//! Links the command against the C library of 2012 (glibc 2.17), like the library: the command is
//! copied to machines that are older than the one that built it.
//!
//! The symbols that the library needs are listed by hand, but the command has too many dependencies
//! for that. Its linker therefore sees all names of this machine's C library, each with its newest
//! version that glibc 2.17 had; newer names stay without a version. If that is not possible, the
//! command is linked as usual, with a warning. `scripts/package/glibc-floor.sh` checks the result
//! against what the README promises.

// The module belongs to the library; the command uses only the parts that make one stand-in.
#[allow(dead_code)]
#[path = "../preload/build/glibc.rs"]
mod glibc;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use glibc::Library;

/// Newest version of the C library that may be required.
const FLOOR: [u32; 2] = [2, 17];
/// Symbols that were in a separate library before glibc 2.34.
const LIBPTHREAD: Library = Library {
    soname: "libpthread.so.0",
    versions: &[(
        "GLIBC_2.2.5",
        "pthread_attr_getguardsize pthread_attr_getstack pthread_attr_setguardsize \
         pthread_attr_setstacksize pthread_create pthread_detach pthread_getattr_np \
         pthread_getspecific pthread_join pthread_key_create pthread_key_delete pthread_kill \
         pthread_once pthread_setspecific pthread_sigmask",
    )],
};
const LIBM: Library = Library {
    soname: "libm.so.6",
    versions: &[("GLIBC_2.2.5", "exp exp2 expf log log2 logf pow powf")],
};

/// Functions of glibc 2.33 and later that were earlier linked into each program, and what they
/// called.
const IN_PROGRAMS: [(&str, &str, &str); 8] = [
    ("stat", "const char *a", "__xstat(VERSION, a, s)"),
    ("lstat", "const char *a", "__lxstat(VERSION, a, s)"),
    ("fstat", "int a", "__fxstat(VERSION, a, s)"),
    ("stat64", "const char *a", "__xstat64(VERSION, a, s)"),
    ("lstat64", "const char *a", "__lxstat64(VERSION, a, s)"),
    ("fstat64", "int a", "__fxstat64(VERSION, a, s)"),
    ("fstatat", "int a, const char *b, void *s, int f", "__fxstatat(VERSION, a, b, s, f)"),
    ("fstatat64", "int a, const char *b, void *s, int f", "__fxstatat64(VERSION, a, b, s, f)"),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../preload/build/glibc.rs");
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return;
    }
    let folder = Path::new(&env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("glibc");
    match write_all(&folder) {
        Ok(()) => {
            println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
            // Undefined symbols between this machine's libraries do not matter here.
            println!("cargo:rustc-link-arg-bins=-Wl,--allow-shlib-undefined");
        }
        Err(problem) => {
            println!("cargo:warning=linked against the C library of this machine: {problem}");
        }
    }
}

fn write_all(folder: &Path) -> Result<(), String> {
    let oldest = glibc::oldest()?;
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let stand_in = |library: &Library| glibc::stand_in(folder, library, oldest);
    let (real_libc, real_libm) = (real("libc.so.6")?, real("libm.so.6")?);
    let versions = versions(&real_libc)?;
    let versions: Vec<(&str, &str)> =
        versions.iter().map(|(version, names)| (version.as_str(), names.as_str())).collect();
    let libc = stand_in(&Library { soname: "libc.so.6", versions: &versions })?;
    let (libpthread, libm) = (stand_in(&LIBPTHREAD)?, stand_in(&LIBM)?);
    let compiled = compile(folder, if oldest.is_none() { 1 } else { 0 })?;
    let loader =
        real(if oldest.is_none() { "ld-linux-x86-64.so.2" } else { "ld-linux-aarch64.so.1" })?;
    let script = format!(
        "GROUP ( AS_NEEDED ( {} {} ) {} -lc_nonshared AS_NEEDED ( {loader} ) )\n",
        libpthread.display(),
        libc.display(),
        compiled.display()
    );
    write(&folder.join("libc.so"), &script)?;
    let script = format!("GROUP ( AS_NEEDED ( {} {real_libm} ) )\n", libm.display());
    write(&folder.join("libm.so"), &script)
}

/// Returns all names of this C library by the version to which they are to be bound.
fn versions(libc: &str) -> Result<BTreeMap<String, String>, String> {
    let output = Command::new("readelf").args(["--dyn-syms", "--wide", libc]).output();
    let output = output.map_err(|error| format!("readelf: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let elsewhere: HashSet<&str> = LIBPTHREAD.versions[0].1.split_whitespace().collect();
    let mut newest: BTreeMap<&str, (Option<Version>, bool)> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, kind @ ("FUNC" | "IFUNC" | "OBJECT"), _, _, index, symbol, ..] = words[..]
        else {
            continue;
        };
        let Some((name, version)) = symbol.split_once('@') else { continue };
        let Some(version) = Version::of(version.trim_start_matches('@')) else { continue };
        if index == "UND" || elsewhere.contains(name) {
            continue;
        }
        let (known, _) = newest.entry(name).or_insert((None, kind == "OBJECT"));
        if version.parts <= FLOOR.to_vec() && known.as_ref().is_none_or(|known| *known < version) {
            *known = Some(version);
        }
    }
    let mut versions: BTreeMap<String, String> = BTreeMap::new();
    for (name, (version, is_data)) in newest {
        // The command compiles its own definition instead.
        if IN_PROGRAMS.iter().any(|(ours, _, _)| *ours == name) {
            continue;
        }
        let version = version.map_or("", |version| version.text);
        let names = versions.entry(version.to_string()).or_default();
        *names += if is_data { " =" } else { " " };
        *names += name;
    }
    match versions.is_empty() {
        true => Err(format!("readelf finds nothing in {libc}")),
        false => Ok(versions),
    }
}

/// A version, ordered by its numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Version<'a> {
    parts: Vec<u32>,
    text: &'a str,
}

impl Version<'_> {
    /// Returns `None` for a version that is not for programs.
    fn of(text: &str) -> Option<Version<'_>> {
        let numbers = text.strip_prefix("GLIBC_")?.split('.').map(str::parse);
        Some(Version { parts: numbers.collect::<Result<_, _>>().ok()?, text })
    }
}

fn compile(folder: &Path, version: u32) -> Result<PathBuf, String> {
    let (source, object) = (folder.join("static.c"), folder.join("static.o"));
    let mut code = String::new();
    for (name, arguments, call) in IN_PROGRAMS {
        let rest = if arguments.contains("*s") { "" } else { ", void *s" };
        let real = call.split('(').next().unwrap_or_default();
        let hidden = "__attribute__((visibility(\"hidden\")))";
        code += &format!(
            "int {real}();\n{hidden} int {name}({arguments}{rest}) {{ return {call}; }}\n"
        );
    }
    write(&source, &code)?;
    let mut command = Command::new(linker());
    command
        .args(["-c", "-O2", "-fPIC", "-std=gnu11", "-w", "-fno-builtin", "-o"])
        .arg(&object)
        .arg(source);
    match command.arg(format!("-DVERSION={version}")).status() {
        Ok(status) if status.success() => Ok(object),
        Ok(status) => Err(format!("{}: {status}", linker())),
        Err(error) => Err(format!("{}: {error}", linker())),
    }
}

/// Returns the path of a file of this machine's C library.
fn real(name: &str) -> Result<String, String> {
    let output = Command::new(linker()).arg(format!("-print-file-name={name}")).output();
    let output = output.map_err(|error| format!("{}: {error}", linker()))?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if path.starts_with('/') { Ok(path) } else { Err(format!("{name} is not found")) }
}

fn linker() -> String {
    env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_string())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

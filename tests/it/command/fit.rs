//! Obstacles to loading the library are reported before the program starts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use cachealloc_tests::{Ran, Run, command, lacks, library, skipped};

use super::{cachealloc, under};
use crate::record::snapshots::Place;

/// Builds a program that exits with 3 in this place.
pub(super) fn build(place: &Place, name: &str, flags: &[&str]) {
    build_of(place, name, "int main(void) { return 3; }\n", flags);
}

pub(super) fn build_of(place: &Place, name: &str, text: &str, flags: &[&str]) {
    let source = place.path.join("three.c");
    fs::write(&source, text).expect("target/ is writable");
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(place.path.join(name)).args(flags).arg(&source);
    assert!(gcc.status().expect("gcc is installed: see .ci/run").success());
}

/// Copies the file, with different bytes in one place.
pub(super) fn change(from: &Path, to: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(from).expect("a file");
    change(&mut bytes);
    fs::write(to, bytes).expect("target/ is writable");
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("our file");
}

pub(super) fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    let place = bytes.windows(old.len()).position(|window| window == old).expect("the old bytes");
    bytes[place..place + old.len()].fill(0);
    bytes[place..place + new.len()].copy_from_slice(new);
}

#[track_caller]
fn refused(place: &Place, program: &str, code: i32, wanted: &str) -> Ran {
    let ran = place.run(&under("", program, ""));
    assert_eq!(ran.stderr, format!("cachealloc: {wanted}\n"));
    assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(code)), "{program}");
    ran
}

const FORCE: &str = "start it without the library with --force";

#[test]
fn programs_that_cannot_load_it() {
    let place = Place::new();
    let path = |name: &str| place.path.join(name);
    build(&place, "plain", &[]);
    assert_eq!(place.run(&under("", "./plain", "")).code, Some(3));
    build(&place, "static", &["-static"]);
    build(&place, "static-pie", &["-static-pie"]);
    for name in ["./static", "./static-pie"] {
        let why = "is linked statically: the library cannot be preloaded; link it without -static (a static \
                   CUDA runtime is fine)";
        refused(&place, name, 125, &format!("{name} {why}; {FORCE}"));
        assert_eq!(place.run(&under("--force", name, "")).code, Some(3));
    }
    change(&path("plain"), &path("arm"), |bytes| bytes[18] = 183);
    let why = "is built for AArch64, but the library for x86-64; install the library for AArch64";
    refused(&place, "./arm", 125, &format!("./arm {why}; {FORCE}"));
    change(&path("plain"), &path("x86"), |bytes| (bytes[4], bytes[18]) = (1, 3));
    refused(&place, "./x86", 125, &format!("./x86 {}; {FORCE}", why.replace("AArch64", "x86")));
    change(&path("plain"), &path("musl"), |bytes| {
        replace(bytes, b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-musl-x86_64.so.1");
    });
    let why = "uses another C library (/lib/ld-musl-x86_64.so.1); the library needs glibc";
    refused(&place, "./musl", 125, &format!("./musl {why}; {FORCE}"));
}

/// Scripts are judged by the interpreter that their first line names, repeatedly if that is a
/// script too.
#[test]
fn scripts_are_followed() {
    let place = Place::new();
    build(&place, "static", &["-static"]);
    let script = |name: &str, text: &str| {
        let path = place.path.join(name);
        fs::write(&path, text).expect("target/ is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our file");
    };
    script("good", "#!/usr/bin/env -S A=b sh\nexit 4\n");
    script("plain", "exit 5\n");
    script("first", &format!("#!{}/second -x\n", place.path.display()));
    script("second", &format!("#! {}/static\n", place.path.display()));
    script("lost", "#!/no/such/shell -e\n");
    assert_eq!(place.run(&under("", "./good", "")).code, Some(4));
    assert_eq!(place.run(&under("", "./plain", "")).code, Some(5));
    let ran = place.run(&under("", "./first", ""));
    assert!(
        ran.stderr.contains("/static is linked statically") && ran.code == Some(125),
        "{ran:?}"
    );
    let windows = place.path.join("windows");
    fs::write(&windows, "#!/bin/sh\r\n").expect("target/ is writable");
    fs::set_permissions(&windows, fs::Permissions::from_mode(0o755)).expect("ours");
    let why = "./windows has Windows line endings; fix them: sed -i 's/\\r$//' ./windows";
    refused(&place, "./windows", 126, why);
    let why = "the interpreter /no/such/shell of ./lost is missing; correct its first line";
    refused(&place, "./lost", 126, why);
}

#[test]
fn missing_programs() {
    let place = Place::new();
    fs::write(place.path.join("data"), "1").expect("target/ is writable");
    refused(&place, "./no", 127, "./no does not exist; check the path");
    let why = "no program surely-not-here in PATH; check its name, or give its path";
    refused(&place, "surely-not-here", 127, why);
    refused(&place, "data", 127, "no program data in PATH; did you mean ./data?");
    refused(&place, "/tmp", 126, "/tmp is a folder; name a program");
    let why = "./data is not executable; make it executable with: chmod +x ./data";
    refused(&place, "./data", 126, why);
}

/// The loader drops `LD_PRELOAD` if the rights are not the user's. Only root can test that here.
#[test]
fn programs_with_other_rights() {
    let place = Place::new();
    build(&place, "other", &[]);
    let path = place.path.join("other");
    if chown(&path, Some(65534), None).is_err() {
        return skipped("only root gives files away");
    }
    assert_eq!(place.run(&under("", "./other", "")).code, Some(3));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("our file");
    let why = "is setuid or has capabilities: nothing can be preloaded; if it starts another program, put the command after it: sudo cachealloc run -- ./app";
    refused(&place, "./other", 125, &format!("./other {why}; {FORCE}"));
}

/// Capabilities of a file count as setuid does, for users that lack them. Only root can set them,
/// and only another user is affected, in a folder that is open to that user.
#[test]
fn programs_with_capabilities() {
    if lacks("python3") {
        return;
    }
    const GIVE: &str = "import os, struct, sys; os.setxattr(sys.argv[1], 'security.capability', \
                        struct.pack('<IIIII', 0x02000001, 1 << 13, 0, 0, 0))";
    let place = Place::new();
    build(&place, "plain", &[]);
    let open = std::env::temp_dir().join(format!("cachealloc-capabilities-{}", std::process::id()));
    fs::create_dir(&open).expect("a folder for all");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("our folder");
    for file in [place.path.join("plain"), command(), library()] {
        fs::copy(&file, open.join(file.file_name().expect("a name"))).expect("there is room");
    }
    let program = open.join("plain");
    let as_another = || {
        let run = Run::program("setpriv").native().folder(&open);
        let run =
            run.args("--reuid 65534 --regid 65534 --clear-groups ./cachealloc run -- ./plain");
        run.output()
    };
    let before = as_another();
    let given = Command::new("python3").args(["-c", GIVE]).arg(&program).output();
    let is_given = given.is_ok_and(|output| output.status.success());
    let after = as_another();
    fs::remove_dir_all(&open).expect("our folder");
    if before.code != Some(3) || !is_given {
        return skipped("only root gives capabilities");
    }
    let why = "cachealloc: ./plain is setuid or has capabilities: nothing can be preloaded; ";
    assert!(after.stderr.starts_with(why) && after.code == Some(125), "{after:?}");
}

#[test]
fn libraries_that_are_none() {
    let place = Place::new();
    build(&place, "plain", &[]);
    let newer = place.path.join("newer.so");
    change(&library(), &newer, |bytes| replace(bytes, b"GLIBC_2.17\0", b"GLIBC_9.17\0"));
    let spaced = place.path.join("a b.so");
    fs::copy(library(), &spaced).expect("target/ is writable");
    for (name, wanted) in [
        ("no.so", "the library no.so does not exist; name libcachealloc.so with --lib or"),
        ("plain", "plain is not the cachealloc library; name libcachealloc.so with --lib or"),
        ("three.c", "three.c is not the cachealloc library; name libcachealloc.so with --lib or"),
        ("newer.so", ", but the library needs 9.17; build the library on this machine and name it"),
        (
            "a b.so",
            "a b.so: colons and spaces separate its paths; copy the library to a path without",
        ),
    ] {
        let run = cachealloc("run --lib").arg(name).args("-- ./plain");
        let ran = place.run(&run);
        assert!(ran.stderr.contains(wanted) && ran.code == Some(125), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

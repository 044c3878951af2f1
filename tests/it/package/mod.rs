//! How people get it: installing, and the packages, with the files that the tests run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cachealloc_tests::{Run, command, compile, library, root};

use crate::snapshots::{Place, trigger};

mod container;
mod deb;
mod install;
mod release;
mod wheel;

/// A script of ours, on what was built for the tests; what it makes goes into this place.
pub fn script(place: &Place, name: &str, arguments: &[&str]) -> Output {
    let mut script = packing(place, name, arguments);
    script.env("DPKG_DEB_COMPRESSOR_TYPE", "none"); // seconds less
    script.output().expect("the script is there")
}

/// The same, not run yet, and with packages as users get them.
pub fn packing(place: &Place, name: &str, arguments: &[&str]) -> Command {
    let mut script = Command::new(root().join("scripts").join(name));
    script.args(arguments).arg("--built").arg(packed(place)).env("CARGO_TARGET_DIR", &place.path);
    script
}

/// The command and the library as the tests run them, without what is for debuggers: a tenth of the
/// bytes.
pub fn packed(place: &Place) -> PathBuf {
    let folder = place.path.join("built");
    fs::create_dir_all(&folder).expect("target/ is writable");
    for file in [command(), library()] {
        let made = folder.join(file.file_name().expect("a name"));
        let output = Command::new("strip").arg("-g").arg("-o").arg(made).arg(file).output();
        ok(&output.expect("binutils come with gcc"));
    }
    folder
}

#[track_caller]
pub fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The command under this prefix finds the library there, and a program runs under it.
#[track_caller]
pub fn works(prefix: &Path, lib: &str) {
    let run = Run::program(prefix.join("bin/cachealloc")).native();
    let ran = run.clone().args("run -- sh -c").arg("echo $LD_PRELOAD").output().ok();
    let library = fs::canonicalize(prefix.join(lib).join("libcachealloc.so")).expect("the library");
    assert_eq!(ran.stdout, format!("{}\n", library.display()));
    let program = run.args("run --stats-on-exit stderr --").arg(compile("triggers.c"));
    let ran = program.arg("return").output();
    let native = trigger("return").native().output();
    assert_eq!((ran.stdout, ran.code), (native.stdout, native.code));
    assert!(ran.stderr.contains("allocations served"), "{}", ran.stderr);
    for file in [
        "include/cachealloc.h",
        "share/man/man1/cachealloc.1",
        "share/man/man1/cachealloc-run.1",
        "share/man/man7/cachealloc.7",
        "share/bash-completion/completions/cachealloc",
        "share/fish/vendor_completions.d/cachealloc.fish",
    ] {
        let there = |end: &str| prefix.join(format!("{file}{end}")).is_file();
        assert!(there("") || there(".gz"), "{file}");
    }
}

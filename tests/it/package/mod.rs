//! Ways to get the library: installing, and the packages, with the files that the tests run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cachealloc_tests::{Run, command, compile, library, root};

use crate::record::snapshots::{Place, trigger};

mod container;
mod deb;
mod install;
mod release;
mod wheel;

/// Runs a script of the project on the files built for the tests; its output goes into this place.
pub fn script(place: &Place, name: &str, arguments: &[&str]) -> Output {
    let mut script = packing(place, name, arguments);
    script.env("DPKG_DEB_COMPRESSOR_TYPE", "none"); // seconds less
    script.output().expect("the script is there")
}

/// Returns the command that runs such a script, with packages as users get them.
pub fn packing(place: &Place, name: &str, arguments: &[&str]) -> Command {
    let mut script = Command::new(root().join("scripts/package").join(name));
    script.args(arguments).arg("--built").arg(packed(place)).env("CARGO_TARGET_DIR", &place.path);
    script
}

/// Returns the command and the library as the tests run them, without debug information: a tenth of
/// the bytes.
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

/// Checks that the command under this prefix finds the library there, and that a program runs under
/// it.
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

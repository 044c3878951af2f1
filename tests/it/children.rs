//! Whatever a program under us starts runs as natively, also where no library can be preloaded.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use cachealloc_tests::{Run, compile, compile_with, root, scratch_file, skipped};

use crate::snapshots::Place;

/// Started in these ways by a program that uses CUDA and records: the same output and end.
#[track_caller]
fn runs_as_natively(child: &Path) {
    for how in ["fork", "spawn", "system", "cleared"] {
        let run = Run::c("parent.c").arg(how).arg(child);
        let native = run.clone().native().output().ok();
        for conf in ["record:all", "record:off"] {
            let place = Place::new();
            let ours = place.run(&run.clone().conf(&format!("{conf},log:quiet"))).ok();
            let said = (&native.stdout, &native.stderr);
            assert_eq!(said, (&ours.stdout, &ours.stderr), "{how}, {conf}: {ours:#?}");
            let count = usize::from(conf == "record:all");
            place.sound(count..=count, &[]);
        }
    }
}

/// Whether this machine has a tool.
pub fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool} >/dev/null")]).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        skipped(&format!("{tool} is not installed"));
    }
    found
}

#[test]
fn ordinary_children() {
    runs_as_natively(&compile("quiet.c"));
}

#[test]
fn static_children() {
    runs_as_natively(&compile_with("quiet.c", "quiet-static", &["-static"]));
}

/// Of another C library. One that is linked with it dynamically is not for any library of glibc's: see docs/safety.md.
#[test]
fn children_with_musl() {
    if !has("musl-gcc") {
        return;
    }
    let program = scratch_file("musl");
    let source = root().join("tests/c/quiet.c");
    let compiler =
        Command::new("musl-gcc").arg("-static").arg(source).arg("-o").arg(&program).status();
    assert!(compiler.expect("musl-gcc").success());
    runs_as_natively(&program);
    fs::remove_file(program).expect("the program");
}

/// It makes its system calls itself: no C library of 32 bits has to be there.
#[cfg(target_arch = "x86_64")]
#[test]
fn children_of_32_bits() {
    let flags = ["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie"];
    runs_as_natively(&compile_with("bare.c", "bare-32", &flags));
}

/// The loader drops what is to be preloaded, without a word.
#[test]
fn children_with_other_rights() {
    let program = scratch_file("setuid");
    fs::copy(compile("quiet.c"), &program).expect("target/ is writable");
    if chown(&program, Some(1), None).is_err() {
        return skipped("only root may give a file away");
    }
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("its own file");
    runs_as_natively(&program);
    fs::remove_file(program).expect("the program");
}

//! Whatever a program under the library starts runs as it does without, even where no library can
//! be preloaded.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use cachealloc_tests::{Run, compile, compile_with, scratch_file, skipped, source};

use crate::record::snapshots::Place;

/// Started in these ways by a program that uses CUDA and records, the child has the same output and
/// exit status.
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

/// Children of another C library. A child linked dynamically with it cannot load a glibc library:
/// see docs/safety.md.
#[test]
fn children_with_musl() {
    if !has("musl-gcc") {
        return;
    }
    let program = scratch_file("musl");
    let source = source("quiet.c");
    let compiler =
        Command::new("musl-gcc").arg("-static").arg(source).arg("-o").arg(&program).status();
    assert!(compiler.expect("musl-gcc").success());
    runs_as_natively(&program);
    fs::remove_file(program).expect("the program");
}

/// The child makes its system calls directly, so no 32-bit C library is needed.
#[cfg(target_arch = "x86_64")]
#[test]
fn children_of_32_bits() {
    let flags = ["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie"];
    runs_as_natively(&compile_with("bare.c", "bare-32", &flags));
}

/// The loader silently drops the preloaded library.
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

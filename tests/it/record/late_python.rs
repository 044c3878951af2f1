//! Python that a program starts when CUDA is already running, and stacks with omitted frames.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cachealloc_tests::{Run, lacks, skipped};

use crate::record::snapshots::Place;

/// Returns the interpreter's library, and the path of its modules.
fn libpython() -> Option<(PathBuf, String)> {
    const WHERE: &str = "import os, sys, sysconfig; of = sysconfig.get_config_var; \
        print(os.path.join(of('LIBDIR'), of('INSTSONAME') or '')); print(sys.base_prefix)";
    if lacks("python3") {
        return None;
    }
    let said = Command::new("python3").args(["-c", WHERE]).output().expect("python3 runs").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut lines = said.lines().map(str::to_string);
    let (library, home) = (PathBuf::from(lines.next()?), lines.next()?);
    let is_shared = library.exists() && library.to_string_lossy().contains(".so");
    if !is_shared {
        skipped("python3 has no shared library");
    }
    is_shared.then_some((library, home))
}

/// Returns the bytes of the only snapshot, which contains names unchanged.
fn snapshot(run: &Run) -> Vec<u8> {
    let place = Place::new();
    place.run(&run.clone().conf("record:all,log:quiet")).ok();
    place.sound(1..=1, &[]);
    fs::read(place.path.join(&place.names()[0])).expect("the snapshot")
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_program_may_start_python_when_cuda_is_running() {
    let Some((library, home)) = libpython() else { return };
    let run = Run::c("embed.c").arg(library).env("PYTHONHOME", home);
    let few = snapshot(&run.clone().arg("3"));
    assert!(has(&few, "in_python") && has(&few, "main"));
    assert!(!has(&few, "further out"));
    let many = snapshot(&run.arg("200"));
    assert!(has(&many, "in_python") && has(&many, "(Python frames further out are not kept)"));
}

#[test]
fn a_stack_says_that_it_is_cut() {
    let run = Run::c("embed.c").arg("native");
    assert!(!has(&snapshot(&run.clone().arg("20")), "further out"));
    assert!(has(&snapshot(&run.arg("200")), "(native frames further out are not kept)"));
}

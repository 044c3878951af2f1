//! `include/cachealloc.h`: its functions exist with these signatures, it compiles under every
//! language standard, and programs that use it also run without the library.

use std::fs;
use std::process::Command;

use cachealloc_tests::{Run, library, root};

/// Compiles in strict standards of both languages, without warnings.
#[test]
fn it_compiles() {
    let languages = [
        ("gcc", "c", "c99"),
        ("gcc", "c", "c17"),
        ("g++", "c++", "c++11"),
        ("g++", "c++", "c++20"),
    ];
    for (compiler, language, standard) in languages {
        let output = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", language])
            .arg(format!("-std={standard}"))
            .arg(root().join("include/cachealloc.h"))
            .output()
            .expect("gcc is installed: see .ci/run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{standard}:\n{said}");
    }
}

/// Returns the functions that the header declares.
fn declared() -> Vec<String> {
    let text = fs::read_to_string(root().join("include/cachealloc.h")).expect("our header");
    let functions = text.split(';').filter(|text| text.ends_with(") CACHEALLOC_WEAK"));
    let name = |text: &str| {
        let function = text.rsplit("*/").next().expect("what follows the comment");
        let (before, _) = function.split_once('(').expect("a function");
        before.rsplit([' ', '*']).next().expect("a name").to_string()
    };
    functions.map(name).collect()
}

#[test]
fn every_function_is_exported_and_nothing_else() {
    let list = fs::read_to_string(root().join("tests/data/exports.txt")).expect("the list");
    let mut exported: Vec<_> =
        list.lines().filter(|name| name.starts_with("cachealloc_")).map(str::to_string).collect();
    let mut declared = declared();
    declared.sort();
    exported.sort();
    assert_eq!(declared, exported);
}

/// One program, which checks the signatures when it is compiled: without the library it finds no
/// function, by symbol or by `dlsym`; under the library every one, by both.
#[test]
fn programs_run_with_and_without_the_library() {
    let natively = Run::c("header.c").native().output().ok();
    assert_eq!(natively.stdout.lines().count(), natively.stdout.matches("not there\n").count());
    let ours = Run::c("header.c").conf("log:quiet").output().ok();
    assert_eq!(ours.stderr, "");
    let said: Vec<_> = ours.stdout.lines().collect();
    let (found, answers) = said.split_at(natively.stdout.lines().count());
    assert!(found.iter().all(|line| line.ends_with(" there") && !line.contains("not")), "{said:?}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(answers, [version, "0 0 19", "22 19", "0", "0 31457280", "0 22 1", "0 19", "2 0"]);
    for name in declared() {
        assert!(
            found.iter().any(|line| line.starts_with(&name)),
            "tests/c/host/header.c lacks {name}"
        );
    }
}

/// The functions exist while the library is off, and report that it is off.
#[test]
fn functions_report_that_the_library_is_off() {
    let off = Run::c("header.c").preload(&[library()]).env("CACHEALLOC", "0").output().ok();
    let answers: Vec<_> = off.stdout.lines().skip_while(|line| line.contains("there")).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        answers,
        [version, "-95 95 95", "95 95", "-95", "-95 -95", "95 95 1", "95 95", "0 0"]
    );
}

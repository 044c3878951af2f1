//! The library in a program: inert without CUDA, off with `CACHEALLOC=0`, transparent to functions
//! that it does not know.

use std::path::PathBuf;

use cachealloc_tests::{Run, compile_library};

/// Before the first CUDA call: no thread, no file, no output. Setting options has no effect.
#[test]
fn inert_without_cuda() {
    let native = Run::c("quiet.c").native().no_driver().output().ok();
    for run in [Run::c("quiet.c").no_driver(), Run::c("quiet.c")] {
        for settings in ["", "stats_on_exit:stderr,log:info", "no_such_option:1"] {
            let ours = run.clone().conf(settings).output().ok();
            assert_eq!(native.stdout, ours.stdout);
            assert_eq!(ours.stderr, "");
        }
    }
}

#[test]
fn a_cuda_program_is_served() {
    let ran = Run::c("use.c").conf("stats_on_exit:stderr").output().ok();
    assert_eq!(ran.stdout, "served by libcachealloc.so\n");
    assert!(ran.report.calls("cuMemAlloc_v2") <= 10, "{:#?}", ran.report);
    assert!(ran.stderr.contains("allocations served"), "{}", ran.stderr);
    let native = Run::c("use.c").native().output().ok();
    assert_eq!(native.report.calls("cuMemAlloc_v2"), 200);
}

#[test]
fn the_switch_turns_everything_off() {
    let ran = Run::c("use.c").env("CACHEALLOC", "0").conf("stats_on_exit:stderr").output().ok();
    assert_eq!(ran.stdout, "served by libcuda.so.1\n");
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.report.calls("cuMemAlloc_v2"), 200);
    // Any other value has no effect.
    let ran = Run::c("use.c").env("CACHEALLOC", "1").output().ok();
    assert_eq!(ran.stdout, "served by libcachealloc.so\n");
}

fn future_driver(flags: &[&str], folder: &str) -> PathBuf {
    let file = compile_library("future_driver.c", &format!("{folder}/libcuda.so.1"), flags);
    file.parent().expect("it has a folder").to_path_buf()
}

/// An unknown function receives every register and the stack unchanged. The library reports it
/// once.
#[test]
fn an_unknown_function_works_and_is_named_once() {
    let driver = future_driver(&[], "driver_future");
    let ran = Run::c("future.c").driver(&driver).output().ok();
    assert_eq!(ran.stdout, "in libcachealloc.so\n");
    let said = ran.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("cuFutureCall"), "{said:?}");
    let quiet = Run::c("future.c").driver(&driver).conf("log:quiet").output().ok();
    assert_eq!(quiet.stderr, "");
    let off = Run::c("future.c").driver(&driver).env("CACHEALLOC", "0").output().ok();
    assert_eq!((off.stdout.as_str(), off.stderr.as_str()), ("in libcuda.so.1\n", ""));
}

/// If the driver lacks required functions, the library passes all calls to it.
#[test]
fn a_driver_without_the_functions_we_need_is_left_alone() {
    let driver = future_driver(&["-DOLD"], "driver_past");
    let native = Run::c("use_little.c").driver(&driver).native().output().ok();
    let ran = Run::c("use_little.c").driver(&driver).output().ok();
    assert_eq!(native.stdout, ran.stdout);
}

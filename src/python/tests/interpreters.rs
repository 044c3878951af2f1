//! In every interpreter found: callbacks, code objects that are created and freed, threads and
//! forks, startup and shutdown.

mod common;

use core::ffi::{CStr, c_void};

use cachealloc_python::{Captured, Status, capture, describe, start, status};

#[test]
fn python_that_c_calls() {
    common::run("callbacks.py");
}

#[test]
fn code_that_comes_and_goes() {
    common::run("codes.py");
}

#[test]
fn threads_and_forks() {
    common::run("threads.py");
}

#[test]
fn before_and_after_the_start() {
    common::run("beginning.py");
}

#[test]
fn after_the_end_there_are_no_frames() {
    for (version, printed) in common::run("end.py") {
        assert!(printed.contains("waiter: 0\n"), "{version}: {printed}");
        assert!(printed.ends_with("after the end: 0 0\n"), "{version}: {printed}");
    }
}

#[test]
fn a_wrong_version_is_found_out() {
    common::run("claims.py");
}

#[test]
fn several_interpreters_in_a_process() {
    for (version, printed) in common::run("subinterpreters.py") {
        eprintln!("{version}: {printed}");
    }
}

#[test]
fn a_process_without_python_has_no_frames() {
    fn global(name: &CStr) -> *const c_void {
        // SAFETY: a valid name.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    }
    assert_eq!(capture(&mut [0; 8]), Captured::default());
    assert_eq!(start(global), Status::NoPython);
    assert_eq!(status(), Status::NoPython);
    assert_eq!(capture(&mut [0; 8]), Captured::default());
    assert_eq!(capture(&mut []), Captured::default());
    assert_eq!(describe(u64::MAX), None);
}

//! Libraries and calls that end the skipping of barriers, those that do not, and the messages about
//! them (docs/ordering.md 3).

use std::fs;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Ran, Run, compile_library, skipped};

use crate::ordering::hazards::PROGRAM;

fn said_with(word: impl Into<std::ffi::OsString>) -> String {
    Run::c("observers.c").arg(word).conf("log:info").output().ok().stderr
}

/// `librdmacm` makes a folder of device files on machines without any card.
#[test]
fn rdma_library_without_a_device_is_not_an_observer() {
    let cards = fs::read_dir("/dev/infiniband").into_iter().flatten().flatten();
    if cards.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("uverbs")) {
        return skipped("there is an RDMA card");
    }
    let library = compile_library("scope_below.c", "beside/libibverbs.so.1", &[]);
    let said = said_with(library);
    assert!(!said.contains(" seen"), "{said}");
}

/// The libraries for encoders, decoders, ray tracing, optical flow and DLSS reach the hardware by
/// other calls than those that the library hooks.
#[test]
fn library_that_bypasses_the_hooks_ends_barrier_elision() {
    for name in [
        "libnvoptix.so.1",
        "libnvidia-encode.so.1",
        "libnvcuvid.so.1",
        "libnvidia-opticalflow.so.1",
        "libnvidia-ngx.so.1",
        "libnvidia-ngx-dlss.so.3",
    ] {
        let library = compile_library("scope_below.c", &format!("beside/{name}"), &[]);
        let said = said_with(library);
        assert!(said.contains("work that cachealloc does not observe"), "{name}: {said}");
    }
    let library = compile_library("scope_below.c", "beside/libnvidia-ml.so.1", &[]);
    assert!(!said_with(library).contains("work that cachealloc does not observe"));
}

/// The message gives the table's number and the library that requests it, so that the place can be
/// found.
#[test]
fn an_unknown_export_table_is_named() {
    let said = said_with("table");
    let name = "observers requests the unknown export table 01234567-89ab-cdef-fedc-ba9876543210";
    assert!(said.contains(name), "{said}");
    assert!(said.contains("an unknown export table was handed out"), "{said}");
}

/// cuFFT uses a part of its table that submits nothing. Another library may use the rest.
#[test]
fn table_known_to_one_library_is_unknown_to_others() {
    for (name, is_unknown) in [("libcufft.so.12", false), ("libanother.so", true)] {
        let library = compile_library("asks_for_a_table.c", &format!("asks/{name}"), &["-ldl"]);
        let said = said_with(library);
        assert_eq!(said.contains("unknown export table"), is_unknown, "{name}: {said}");
    }
}

/// A barrier has deferred its wait because one stream has all work. After an unknown table is
/// handed out, work may bypass the library, so the wait is submitted.
#[test]
fn unknown_export_table_flushes_deferred_waits() {
    let waits = |words: &[&str], broken: &str| {
        let run = words.iter().fold(Run::c("observers.c"), |run, word| run.arg(*word));
        let ran = run.env("CACHEALLOC_BREAK", broken).output().ok();
        (ran.report.calls("cuCtxRecordEvent"), ran.report.calls("cuCtxWaitEvent"))
    };
    assert_eq!(waits(&["work"], ""), (1, 0));
    assert_eq!(waits(&["work", "table"], ""), (1, 1));
    assert_eq!(waits(&["work", "table"], Rule::UntrackedSubmissionFlushes.name()), (1, 0));
}

/// After a call that the driver refuses, pinned memory is kept as before.
#[test]
fn refused_calls_leave_no_trace() {
    let requests = |word: &str, broken: &str| {
        let run = Run::c("after_a_refusal.c").arg(word).env("CACHEALLOC_BREAK", broken);
        run.output().ok().report.calls("cuMemHostAlloc")
    };
    assert_eq!(requests("nothing", ""), 1);
    assert_eq!(requests("capture", ""), 1);
    assert_eq!(requests("request", ""), 1);
    assert_eq!(requests("capture", Rule::RefusedBeginCapturesNothing.name()), 4);
    assert_eq!(requests("request", Rule::FailureKeepsCaching.name()), 4);
}

/// No call of the library is a cancellation point.
#[test]
fn cancelled_thread_ends_its_module() {
    let ran = Run::c("after_a_refusal.c").arg("cancelled").output().ok();
    assert_eq!(ran.stdout, "unloaded\n", "{ran:#?}");
}

#[test]
fn pool_of_the_program_is_reported_once() {
    let run = Run::program(PROGRAM).arg("pool_of_its_own").conf("log:info");
    let said = run.output().ok().stderr;
    assert_eq!(said.matches("cuMemAllocAsync goes to the driver from now on").count(), 1, "{said}");
}

fn in_two_contexts(program: &str, settings: &str) -> Ran {
    let run = Run::program(PROGRAM).arg(program).env("SIM_DEVICES", "2");
    let natively = run.clone().native().output().ok();
    let ours = run.conf(&format!("stats_on_exit:stderr,log:info,{settings}")).output().ok();
    assert_eq!(natively.stdout, ours.stdout);
    assert_eq!(ours.report.races(), 0, "{ours:#?}");
    ours
}

/// With this option the program promises to order its contexts itself: no free waits, whatever its
/// threads do.
#[test]
fn a_program_may_order_its_contexts_itself() {
    let said = in_two_contexts("events_between_contexts", "across_contexts:barrier").stderr;
    // Only its threads wait, when they end.
    let mut waits = said.lines().filter(|line| line.contains("waits, "));
    assert!(waits.all(|line| line.contains("waits, teardown after a free")), "{said}");
    assert!(!said.contains(" seen: "), "{said}");
    let said = in_two_contexts("events_between_contexts", "across_contexts:wait").stderr;
    assert!(said.contains("PeerAccess seen") && said.contains("waits, free"), "{said}");
}

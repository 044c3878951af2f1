//! Memory that the driver takes for itself has rows in `cachealloc explain` while something is
//! recorded. Nothing is missing or counted twice, and the output states what cannot be measured.

use std::collections::BTreeMap;

use cachealloc_core::rules::Rule;
use cachealloc_tests::Run;

use super::explain::{account, explain};
use crate::record::statistics::Running;

/// Memory of a module, of a kernel, and additional memory of the first launch, in MiB.
const MODULE: i64 = 14;
const KERNEL: i64 = 4;
const LOCAL: i64 = 6;

fn program(way: &str) -> Run {
    let run = Run::c("taken.c").arg(way).env("SIM_CONTEXT_MB", "40").env("SIM_LIMITS_TAKE", "1");
    let sizes = [("SIM_MODULE_MB", MODULE), ("SIM_KERNEL_MB", KERNEL), ("SIM_LOCAL_MB", LOCAL)];
    sizes.into_iter().fold(run, |run, (name, mib)| run.env(name, mib.to_string()))
}

/// Returns the rows of the driver's own memory with the rest, in MiB, and the number of calls that
/// could not be measured.
#[track_caller]
fn taken(run: Run) -> (BTreeMap<String, i64>, i64) {
    let running = Running::new(run);
    running.wait_for_file();
    let (device, mut parts) = account(explain(&running.child.id().to_string(), None));
    assert_eq!(running.end(), Some(0));
    let taken = ["modules", "launches", "limits", "objects", "rest"];
    parts.retain(|part, _| taken.contains(&part.as_str()));
    (parts, device["missed"].as_i64().expect("a number"))
}

fn rows(rows: &[(&str, i64)]) -> BTreeMap<String, i64> {
    rows.iter().map(|(part, mib)| (part.to_string(), *mib)).collect()
}

const RECORDED: &str = "log:quiet,record:state,snapshot:/dev/null/no";

#[test]
fn each_call_is_charged_what_it_took() {
    let modules = 2 * MODULE + 3 * KERNEL;
    let launches = LOCAL + 2 * KERNEL;
    let wanted = rows(&[("modules", modules), ("launches", launches), ("limits", 8), ("rest", 0)]);
    assert_eq!(taken(program("calls").conf(RECORDED)), (wanted, 0));
    let unrecorded = rows(&[("rest", modules + launches + 8)]);
    assert_eq!(taken(program("calls").conf("log:quiet")), (unrecorded, 0));
}

/// A question about a kernel loads it.
#[test]
fn questions_are_charged_the_kernels_that_they_load() {
    let wanted = rows(&[("modules", MODULE + 7 * KERNEL), ("rest", 0)]);
    assert_eq!(taken(program("questions").conf(RECORDED)), (wanted, 0));
}

/// A stream takes memory, and a graph does when it is made and when it is first launched.
#[test]
fn objects_are_charged_what_they_took() {
    let run = program("objects").conf(RECORDED).env("SIM_OBJECT_MB", "2");
    assert_eq!(taken(run), (rows(&[("objects", 3 * 2), ("rest", 0)]), 0));
}

/// Overlapping intervals count as one.
#[test]
fn threads_at_once_are_not_counted_twice() {
    let wanted = rows(&[("modules", 24 * (MODULE + KERNEL)), ("rest", 0)]);
    for pause in ["", "cuModuleLoadData@*=1,cuFuncLoad@*=1"] {
        let run = program("threads").conf(RECORDED).env("SIM_PAUSE_MS", pause);
        assert_eq!(taken(run), (wanted.clone(), 0));
    }
}

/// The cache releases 50 MiB while the driver loads.
#[test]
fn other_memory_is_not_attributed_to_the_call() {
    let run = program("short").conf(RECORDED).env("SIM_MEMORY_MB", "100");
    assert_eq!(taken(run), (rows(&[("rest", MODULE)]), 1));
}

#[test]
fn beside_managed_memory_nothing_is_measured() {
    let run = program("managed").conf(RECORDED);
    assert_eq!(taken(run), (rows(&[("rest", MODULE)]), 1));
}

#[test]
fn in_a_capture_nothing_is_measured() {
    let run = program("captured").conf(RECORDED);
    // The function that is looked up, and its code.
    assert_eq!(taken(run), (rows(&[("modules", MODULE), ("rest", KERNEL)]), 2));
}

#[test]
fn memory_taken_before_recording_is_not_subtracted() {
    let run = program("late").conf("log:quiet,snapshot:/dev/null/no");
    let wanted = rows(&[("modules", MODULE), ("launches", KERNEL), ("rest", LOCAL)]);
    assert_eq!(taken(run), (wanted, 0));
}

#[test]
fn measurement_ends_with_its_context() {
    let run = program("ends").conf(RECORDED);
    assert_eq!(taken(run), (rows(&[("rest", 0)]), 0));
}

/// For a program that is not recorded, the library queries the driver only for the free memory of a
/// large request.
#[test]
fn unrecorded_calls_do_not_ask_the_driver() {
    let run = program("calls").env("CACHEALLOC_BREAK", Rule::OnlySupportedQueries.name());
    let ran = run.conf("log:quiet").output().ok();
    assert_eq!(ran.report.calls("cuMemGetInfo_v2"), 1);
}

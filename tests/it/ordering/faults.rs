//! The driver refuses every call of the library once, at every index, in a program that uses
//! everything (`tests/programs/faults.rs`).
//!
//! Whatever fails: the program ends, no byte is wrong, nothing races, and no memory is lost. A code
//! differs from the driver's only if the failed call was the program's own, or if `SURFACES` gives
//! the reason.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_tests::{Ran, Run, root, tier};

use crate::ordering::hazards::problems;
use crate::record::snapshots::Place;

#[test]
fn every_call_fails_once() {
    check("", &[1, 2], &api_functions());
}

#[test]
fn every_call_of_a_recording_process_fails_once() {
    check(
        "record:all,log:quiet",
        &[2],
        &["cuMemAlloc_v2", "cuEventCreate", "cuCtxGetId"].map(String::from),
    );
}

#[test]
fn every_call_for_an_arena_fails_once() {
    let names = [
        "cuMemAddressReserve",
        "cuMemAddressFree",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuEventSynchronize",
        "cuDeviceGetAttribute",
    ];
    check("expandable_segments:true,log:quiet", &[1, 2], &names.map(String::from));
}

#[test]
fn a_lost_context() {
    let names = ["cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventSynchronize", "cuMemFree_v2"];
    check("", &[LOST], &names.map(String::from));
}

/// Highest index of one function that is tried: the script reaches all its states well before.
const INDICES_MAX: u64 = 40;
const WORKERS: usize = 4;
/// The code of a context that no work reaches any more.
const LOST: i32 = 700;

fn program() -> Run {
    let run = Run::program(env!("CARGO_BIN_EXE_faults"));
    run.env("SIM_MEMORY_MB", "256").env("SIM_DEADLOCK_MS", "20000")
}

/// Functions that the library may call on its own account.
fn api_functions() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("src/preload/driver/api.rs"));
    let text = text.expect("the list of calls");
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names: BTreeSet<_> = words.filter(|word| word.starts_with("cu")).collect();
    // The library calls these only with green contexts, or if memory is short after the end of a
    // graph; the program itself calls them.
    const PROGRAMS: [&str; 6] = [
        "cuDevicePrimaryCtxRetain",
        "cuGraphCreate",
        "cuGraphDestroy",
        "cuGraphExecDestroy",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
    ];
    let names = names.into_iter().filter(|name| !PROGRAMS.contains(name));
    let names = names.filter(|name| name.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase));
    names.map(str::to_string).collect()
}

fn check(conf: &str, codes: &[i32], functions: &[String]) {
    let natively = program().native().output().ok();
    // Snapshots are sound in the configurations that record, whatever failed.
    let counted = Place::new().run(&program().conf(conf)).ok();
    assert_eq!(wrong(&natively, &natively, "", 0), None);
    // Memory in an arena cannot be exported: steps that do fail without a fault.
    let natively = match conf.contains("expandable") {
        true => Place::new().run(&program().conf(conf)).ok(),
        false => natively,
    };
    assert_eq!(counted.stdout, natively.stdout, "without a failure");
    let mut faults = Vec::new();
    for function in functions {
        for index in indices(counted.report.calls(function).min(INDICES_MAX)) {
            let code = codes[index as usize % codes.len()];
            faults.push((function.as_str(), index, code));
        }
    }
    println!("{} failures of {} functions", faults.len(), functions.len());
    assert!(faults.len() > tier::count(4, 20), "hardly anything was called");
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(String::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((function, index, code)) =
                    faults.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let fault = format!("{function}@{index}={code}");
                    let place = Place::new();
                    let ran = place.run(&program().conf(conf).env("SIM_FAIL", &fault));
                    if conf.contains("record") && *index % 8 == 1 {
                        place.sound(0..=3, &[]);
                    }
                    if let Some(problem) = wrong(&ran, &natively, function, *code) {
                        writeln!(failures.lock().unwrap(), "{fault}: {problem}").unwrap();
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} are wrong:\n{failures}", failures.lines().count());
}

/// The indices that fail among this many calls of a function, each in a separate run.
fn indices(calls: u64) -> Vec<u64> {
    let is_tried = |index: &u64| tier::is_long() || *index <= 2 || *index == calls;
    (1..=calls).filter(is_tried).collect()
}

/// Describes what is wrong, if anything.
fn wrong(ran: &Ran, natively: &Ran, function: &str, code: i32) -> Option<String> {
    if ran.code != Some(0) || !ran.stdout.ends_with("end\n") {
        return Some(format!("ended with {:?}: {:?}", ran.code, ran.stderr.lines().next()));
    }
    let problems = problems(ran);
    if !problems.is_empty() {
        return Some(format!("{problems:?}"));
    }
    let lines: Vec<&str> = ran.stdout.lines().collect();
    // Memory that faulted work may still touch is lost with its context, until that ends.
    let lost = |line: &str| is_loss(line) && !(code == LOST && line.starts_with("lost: "));
    if let Some(line) = lines.iter().find(|line| line.contains("WRONG") || lost(line)) {
        return Some(line.to_string());
    }
    // A failed step omits the steps that depend on it, so only existing lines are compared.
    let native: BTreeSet<&str> = natively.stdout.lines().collect();
    let odd =
        lines.iter().find(|line| !native.contains(*line) && !own_failure(line, function, code));
    odd.map(|line| format!("{line:?}"))
}

fn is_loss(line: &str) -> bool {
    let starts = ["lost: ", "not given back: "];
    starts.iter().any(|start| line.strip_prefix(start).is_some_and(|bytes| bytes != "0"))
}

/// Returns `true` if the failed function serves this step in the driver itself, and the step has
/// its code.
fn own_failure(line: &str, function: &str, code: i32) -> bool {
    let Some((step, said)) = line.split_once(": ") else { return false };
    if step.ends_with(" again") {
        return said == "0" || (code == LOST && said == "1");
    }
    if code == LOST && (step == "free" || step == "lost") {
        return true;
    }
    // With ordinary segments in place of an arena, exports work as without the library.
    if (step, said) == ("export", "0") {
        return true;
    }
    let own = SURFACES
        .iter()
        .any(|(step_of, functions)| *step_of == step && functions.contains(&function));
    own && said == code.to_string()
}

/// Steps of the program, and the functions whose failure they may show: the program's own calls,
/// and below them calls that the library makes because the driver's own call would need the answer
/// too.
const SURFACES: &[(&str, &[&str])] = &[
    ("memory", &["cuMemGetInfo_v2"]),
    ("stream", &["cuStreamCreate"]),
    ("synchronize", &["cuCtxSynchronize"]),
    ("pool", &["cuDeviceGetDefaultMemPool"]),
    ("attribute", &["cuMemPoolGetAttribute"]),
    ("pinned", &["cuMemHostAlloc"]),
    ("free pinned", &["cuMemFreeHost"]),
    ("free node", &["cuMemFreeAsync"]),
    // When nothing else may be done, a free waits through a free of the driver, and returns its
    // code.
    ("free", &["cuMemFree_v2"]),
    // The current context and the owner of the stream: 201 and 400 in the driver itself. An error
    // of the event that the block waits for, other than out of memory, is one of the stream.
    ("alloc", &["cuMemAlloc_v2", "cuCtxGetId", "cuCtxGetCurrent", "cuStreamSynchronize"]),
    ("alloc async", &["cuMemAllocAsync", "cuStreamGetId"]),
    ("free async", &["cuMemFreeAsync", "cuStreamGetId", "cuEventRecord"]),
];

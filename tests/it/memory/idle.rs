//! Idle memory is released to the driver (`trim/idle.rs`): peer processes can use it, and the
//! program itself is not affected.
//!
//! In test builds `CACHEALLOC_PASS_MS` sets the interval of the scavenger's passes. Options in
//! seconds count such passes.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Ran, Run, driver_folder, scratch_file, tier};

use crate::ordering::hazards::{Hazard, hazards, problems};
use crate::ordering::random;

/// As soon as by default, and no later if memory is requested again.
const ALWAYS: &str = "idle_release_s:3";
const ALWAYS_EXPANDABLE: &str = "idle_release_s:3,expandable_segments:true";
/// Releases any free memory.
const EAGER: &str = "idle_release_s:off,eager_delete_tensor_gb:0";
const EAGER_EXPANDABLE: &str =
    "idle_release_s:off,eager_delete_tensor_gb:0,expandable_segments:true";

fn program(way: &str) -> Run {
    let run = Run::program(env!("CARGO_BIN_EXE_idle"));
    way.split(' ').fold(run, |run, word| run.arg(word))
}

/// Passes follow each other with almost no pause.
fn hurried(way: &str) -> Run {
    program(way).env("CACHEALLOC_PASS_MS", "1")
}

fn broken(run: Run, rule: Rule) -> Run {
    run.env("CACHEALLOC_BREAK", rule.name())
}

/// Checks that the run succeeds silently and that the simulation found nothing.
#[track_caller]
fn clean(run: &Run) -> Ran {
    let ran = run.output().ok();
    assert_eq!((problems(&ran), &*ran.stderr), (vec![], ""), "{ran:#?}");
    ran
}

/// Checks that at least one of several runs goes wrong.
#[track_caller]
fn goes_wrong(run: &Run) {
    let wrong = |ran: &Ran| ran.code != Some(0) || !problems(ran).is_empty();
    assert!((0..100).any(|_| wrong(&run.output())), "nothing went wrong without the rule");
}

fn given_back(ran: &Ran) -> u64 {
    ran.report.calls("cuMemFreeAsync") + ran.report.calls("cuMemUnmap")
}

/// Whether the program's idle blocks are released while it sleeps. One of several runs is enough,
/// because the machine may be busy.
fn goes_back(run: &Run) -> bool {
    (0..20).any(|_| given_back(&clean(run)) >= 5)
}

/// One process has freed most of the device's memory and sleeps; another one requests much of it.
/// Returns the output of the second one.
fn neighbours(
    conf: &str,
    part_mib: usize,
    second: impl FnOnce(Run) -> Run,
    tries: usize,
) -> String {
    neighbours_with(conf, part_mib, second, tries, &[])
}

fn neighbours_with(
    conf: &str,
    part_mib: usize,
    second: impl FnOnce(Run) -> Run,
    tries: usize,
    variables: &[(&str, &str)],
) -> String {
    let (device, done) = (scratch_file("device"), scratch_file("done"));
    let freed = PathBuf::from(format!("{}.freed", done.display()));
    let first = hurried(&format!("hold 900 {part_mib} {}", done.display()));
    let first = first.conf(conf).env("CACHEALLOC_PASS_MS", "20").env("SIM_SHARED", &device);
    let first = variables.iter().fold(first, |first, (name, value)| first.env(name, value));
    let first = thread::spawn(move || clean(&first));
    while !freed.exists() && !first.is_finished() {
        thread::sleep(Duration::from_millis(2));
    }
    let asks = program(&format!("ask 600 {tries}")).env("SIM_SHARED", &device);
    let said = clean(&second(asks)).stdout;
    std::fs::write(&done, "").expect("target/ is writable");
    first.join().expect("it ends well");
    let files: [PathBuf; 2] = [done, freed];
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    std::fs::remove_dir_all(device).expect("it was made");
    said
}

#[test]
fn peer_process_gets_idle_memory() {
    const PATIENT: usize = 1_000;
    for part_mib in [900, 100, 20, 2] {
        assert_eq!(neighbours("", part_mib, Run::native, PATIENT), "ask: came\n", "{part_mib}");
    }
    let expandable = "expandable_segments:true";
    assert_eq!(neighbours(expandable, 20, Run::native, PATIENT), "ask: came\n");
    assert_eq!(
        neighbours("", 100, |run| run.conf("log:quiet"), PATIENT),
        "ask: came\n",
        "the second process is under the library, too"
    );
    assert_eq!(neighbours("idle_release_s:5", 20, Run::native, PATIENT), "ask: came\n");
}

/// A stream-ordered free alone does not return memory to the device; waiting for it does.
#[test]
fn released_memory_reaches_the_driver() {
    let broken = [("CACHEALLOC_BREAK", Rule::ReleaseSynchronizes.name())];
    assert_eq!(neighbours_with("", 100, Run::native, 50, &broken), "ask: never came\n");
}

#[test]
fn peer_process_gets_no_memory_if_release_is_off() {
    assert_eq!(neighbours("idle_release_s:off", 100, Run::native, 50), "ask: never came\n");
    assert_eq!(
        neighbours("strategy:pre_allocate,log:quiet", 100, Run::native, 50),
        "ask: never came\n"
    );
}

/// Released even if no other process needs it and most of the device is free.
#[test]
fn passed_peak_is_released() {
    let roomy = |conf: &str| hurried("rest 100").conf(conf).env("SIM_MEMORY_MB", "16384");
    assert!(goes_back(&roomy("")));
    assert_eq!(given_back(&clean(&roomy("idle_release_s:off"))), 0);
    for conf in ["", "expandable_segments:true"] {
        all_goes_back(hurried("all").conf(conf).env("SIM_MEMORY_MB", "16384"));
    }
}

/// The program has 500 MiB free and requests nothing. The memory is in whole segments, or in an
/// arena, which releases single pages.
#[test]
fn free_memory_falls_to_its_maximum() {
    const QUARTER: &str = "idle_release_s:off,eager_delete_tensor_gb:0.25";
    let expandable = format!("{QUARTER},expandable_segments:true");
    for (conf, left_mib) in [(QUARTER, 200), (&*expandable, 256), (EAGER, 0), (EAGER_EXPANDABLE, 0)]
    {
        for way in ["falls", "falls_in_order"] {
            all_goes_back(hurried(&format!("{way} {left_mib}")).conf(conf));
        }
    }
    let rest = |conf: &str| given_back(&clean(&hurried("rest 100").conf(conf)));
    assert_eq!(rest("idle_release_s:off,eager_delete_tensor_gb:1"), 0);
    assert_eq!(rest("idle_release_s:off,eager_delete_tensor_gb:-1"), 0);
    assert_eq!(rest(&format!("{EAGER},memory_fraction_of_eager_deletion:0")), 0);
}

/// A program that needs its memory again every 40 passes releases it once, or a few times on a busy
/// machine.
#[test]
fn loop_with_a_long_period_stops_releasing() {
    for conf in ["", "expandable_segments:true"] {
        let rounds = program("rounds 30 200").env("CACHEALLOC_PASS_MS", "5").conf(conf);
        let said = clean(&rounds).stdout;
        assert_eq!(said, "rounds: ok\n", "{conf}");
    }
    let fixed = program("rounds 30 200").env("CACHEALLOC_PASS_MS", "5").conf(ALWAYS).output();
    assert!(fixed.stdout.contains("FAIL"), "{fixed:?}");
}

#[test]
fn memory_is_released_after_the_configured_time() {
    let run = |seconds: u32| {
        let conf = format!("idle_release_s:{seconds}");
        let run = program("rest 300").env("CACHEALLOC_PASS_MS", "20").conf(&conf);
        run.env("SIM_MEMORY_MB", "4096")
    };
    assert!(goes_back(&run(2)));
    assert_eq!(given_back(&clean(&run(1000))), 0);
}

/// A steady loop keeps the memory that it uses at every step.
#[test]
fn a_loop_keeps_its_memory() {
    for conf in [ALWAYS, ALWAYS_EXPANDABLE] {
        let ran = clean(&program("steps 1500").env("CACHEALLOC_PASS_MS", "200").conf(conf));
        assert_eq!(given_back(&ran), 0, "{conf}");
    }
}

/// The option `signal`, off here, needs a thread as well.
#[test]
fn little_memory_is_not_worth_a_thread() {
    let threads =
        |conf: &str| clean(&program("threads").conf(&format!("signal:off,{conf}"))).stdout;
    assert_eq!(threads(""), "threads: 0, then 1\n");
    assert_eq!(threads("idle_release_s:off"), "threads: 0, then 0\n");
    assert_eq!(threads("idle_release_s:7"), "threads: 0, then 1\n");
    // There is more free memory than the option allows.
    assert_eq!(threads("idle_release_s:off,eager_delete_tensor_gb:0.1"), "threads: 0, then 1\n");
    assert_eq!(threads("idle_release_s:off,eager_delete_tensor_gb:0.2"), "threads: 0, then 0\n");
    assert_eq!(threads("strategy:pre_allocate"), "threads: 0, then 0\n");
}

/// Everything is released, including a small segment whose last block is in a thread cache, and
/// again after the second round.
#[test]
fn unused_memory_is_released() {
    for conf in [ALWAYS, ALWAYS_EXPANDABLE, EAGER, EAGER_EXPANDABLE] {
        all_goes_back(hurried("all").conf(conf));
    }
}

#[track_caller]
fn all_goes_back(run: Run) {
    let device = scratch_file("device");
    clean(&run.env("SIM_SHARED", &device));
    std::fs::remove_dir_all(device).expect("it was made");
}

/// Without idle memory the scavenger makes no driver calls. One query of the used memory, and one
/// push of the context, happen when the context is created. The free-memory query of large requests
/// is switched off here.
#[test]
fn memory_in_use_costs_no_call() {
    let ran = clean(&broken(hurried("keep 100").conf(ALWAYS), Rule::OnlySupportedQueries));
    let calls = ["cuMemGetInfo_v2", "cuCtxPushCurrent_v2"].map(|name| ran.report.calls(name));
    assert_eq!(calls, [1, 1]);
}

#[test]
fn no_memory_is_released_during_a_capture() {
    clean(&hurried("capture 100").conf(ALWAYS));
}

/// Each call of the scavenger fails once: the program does not notice, and no memory is lost.
#[test]
fn the_driver_may_refuse() {
    let calls = [
        "cuDevicePrimaryCtxGetState",
        "cuThreadExchangeStreamCaptureMode",
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "cuStreamCreate",
        "cuMemFreeAsync",
        "cuStreamSynchronize",
        "cuMemUnmap",
        "cuMemRelease",
    ];
    for (place, call) in calls.into_iter().enumerate() {
        for index in 1..tier::count(3, 5) {
            let code = [1, 2, 700][(place + index) % 3];
            let conf = if call.starts_with("cuMemUn") || call.starts_with("cuMemRel") {
                ALWAYS_EXPANDABLE
            } else {
                ALWAYS
            };
            let fault = format!("{call}@{index}={code}");
            println!("{fault}");
            all_goes_back(hurried("all").conf(conf).env("SIM_FAIL", fault));
        }
    }
}

#[test]
fn released_memory_is_logged() {
    let run = hurried("rest 100").conf("log:info");
    let line = "released 500 MiB of unused memory to the driver";
    assert!((0..20).any(|_| run.output().ok().stderr.contains(line)));
}

#[test]
fn work_that_still_runs_keeps_its_memory() {
    for conf in [ALWAYS, ALWAYS_EXPANDABLE, EAGER, EAGER_EXPANDABLE] {
        let run = hurried("late_kernel 100").conf(conf);
        clean(&run);
        goes_wrong(&broken(run, Rule::IdleAfterBarrier));
    }
}

#[test]
fn request_finds_memory_in_release() {
    clean(&hurried("room 150").conf(ALWAYS));
    clean(&hurried("room 50").conf(ALWAYS_EXPANDABLE));
    clean(&hurried("room 50").conf(EAGER));
    clean(&hurried("room 50").conf(EAGER_EXPANDABLE));
    clean(&hurried("room 150").conf(&format!("{ALWAYS},gpu_memory_limit_mb:950")));
    // If memory arrives after the last check of the cache, the driver serves the request.
    let conf = format!("{ALWAYS},stats_on_exit:stderr");
    let runs: Vec<_> = (0..3).map(|_| hurried("room 150").conf(&conf).output().ok()).collect();
    let passes_none = |ran: &Ran| !ran.stderr.contains("requests passed to the driver");
    assert!(runs.iter().any(passes_none), "{runs:#?}");
    goes_wrong(&broken(hurried("room 150").conf(ALWAYS), Rule::ReleaseInProgressIsAwaited));
}

/// The scavenger may be the first to notice that a capture has ended.
#[test]
#[ignore = "long tier"]
fn scavenger_may_see_the_end_of_a_green_context_first() {
    let capture = |hazard: &Hazard| hazard.name == "capture_of_a_green_context";
    let hazard = hazards().into_iter().find(capture).expect("it is listed");
    let run = hazard.run().conf(ALWAYS).env("CACHEALLOC_PASS_MS", "1");
    for _ in 0..2_000 {
        assert_eq!(hazard.wrong(&run.output(), None), None);
    }
}

#[test]
fn memory_in_release_keeps_its_contents() {
    for conf in [ALWAYS, ALWAYS_EXPANDABLE, EAGER, EAGER_EXPANDABLE] {
        clean(&hurried("answers 1500").conf(conf));
    }
}

#[test]
fn contexts_end_beside_the_scavenger() {
    for way in ["contexts 80", "primary 80"] {
        clean(&hurried(way).conf(ALWAYS));
        goes_wrong(&broken(hurried(way).conf(ALWAYS), Rule::ContextEndStopsScavenger));
    }
    clean(&hurried("contexts 20").conf(ALWAYS_EXPANDABLE));
}

/// The library does not see calls that bypass it.
#[test]
fn a_context_that_ended_unseen_is_not_entered() {
    let file = driver_folder().join("libcuda.so.1").canonicalize().expect("the driver is there");
    let names = Command::new("nm").arg("-D").arg(file).output().expect("binutils come with gcc");
    let names = String::from_utf8(names.stdout).expect("names are ASCII");
    let offset = |name: &str| {
        let line = names.lines().find(|line| line.ends_with(&format!(" {name}")));
        let offset = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
        offset.expect("the driver has the function")
    };
    let [reset, retain, alloc, free] =
        ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemFree_v2"]
            .map(offset);
    clean(&hurried(&format!("ends_unseen {reset} {retain} {alloc} {free}")).conf(ALWAYS));
}

#[test]
fn process_ends_beside_the_scavenger() {
    for us in [2_000, 4_000, 5_000, 6_000] {
        let run = hurried(&format!("leave {us}")).conf(ALWAYS).env("SIM_TEARDOWN_MS", "30");
        clean(&run);
        if us == 4_000 {
            goes_wrong(&broken(run, Rule::ScavengerStopsAtExit));
        }
    }
}

#[test]
fn forks_threads_and_exits_behave_as_without_the_library() {
    for way in [
        "fork_before",
        "fork_after",
        "fork_and_exit",
        "vfork_exit",
        "threads_end",
        "_exit",
        "quick_exit",
        "abort",
        "exit_from_thread",
        "free_at_exit",
        "exec",
    ] {
        let run = Run::c("process.c").arg(way).conf(ALWAYS).env("CACHEALLOC_PASS_MS", "1");
        let (native, ours) = (run.clone().native().output(), run.output());
        assert_eq!((&native.stdout, native.code), (&ours.stdout, ours.code), "{way}: {ours:#?}");
    }
}

/// Everything that holds without the scavenger also holds while it releases memory all the time.
#[test]
#[ignore = "long tier"]
fn hazards_pass_beside_the_scavenger() {
    let mut failures = String::new();
    for hazard in hazards().iter().filter(|hazard| hazard.is_for(Some("ordered"))) {
        let natively = hazard.natively.then(|| hazard.natively());
        let run = hazard.run().conf(ALWAYS).env("CACHEALLOC_PASS_MS", "1");
        let problem = hazard.wrong(&run.output(), natively.as_deref());
        if let Some(problem) = problem.filter(|_| !hazard.is_gap_of_plain()) {
            writeln!(failures, "{problem}").unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn random_programs_are_right() {
    let mut failures = String::new();
    for seed in 1..tier::count(40, 300) {
        let conf = [ALWAYS, ALWAYS_EXPANDABLE, EAGER, EAGER_EXPANDABLE][seed as usize % 4];
        let ran = random::program(seed, "full").conf(conf).env("CACHEALLOC_PASS_MS", "1").output();
        failures += &random::problem(&ran)
            .map(|problem| format!("{seed}: {problem}\n"))
            .unwrap_or_default();
    }
    assert!(failures.is_empty(), "{failures}");
}

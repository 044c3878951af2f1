//! `cachealloc run --max-peak --max-leak --only-library` limits a program in CI. `planted 2` holds
//! at most 38 MiB and 64 KiB, and leaves 6 MiB.

use std::fs;

use cachealloc_tests::{Ran, Run, compile, compile_library, lacks};

use super::{cachealloc, masked};
use crate::record::snapshots::Place;

/// Runs a script under these limits, with the snapshots in a visible place.
fn limited(place: &Place, flags: &str, script: &str) -> Ran {
    let run = cachealloc(&format!("run {flags} -- sh -c")).arg(script);
    place.run(&run.env("TMPDIR", fs::canonicalize(&place.path).expect("the folder")))
}

/// Stderr without the library's line about its snapshot and the command that ends it.
fn said(ran: &Ran) -> String {
    let is_verdict =
        |line: &&str| !line.contains("snapshot: /") && !line.ends_with("removed the snapshot");
    ran.stderr.lines().filter(is_verdict).map(|line| format!("{line}\n")).collect()
}

fn planted(arguments: &str) -> String {
    format!("{} {arguments}", compile("planted.c").display())
}

#[test]
fn a_program_within_its_limits_is_left_alone() {
    let place = Place::new();
    for flags in ["--max-peak 39M", "--max-leak 6M", "--max-peak 1G --max-leak 1G"] {
        let ran = limited(&place, flags, &format!("{}; echo out", planted("2")));
        assert_eq!((ran.code, ran.stdout.as_str(), said(&ran).as_str()), (Some(0), "out\n", ""));
        assert!(ran.stderr.ends_with("cachealloc: removed the snapshot\n"), "{ran:?}");
    }
    // Without any allocation the command reports only that.
    let ran = limited(&place, "--max-peak 0", "true").ok();
    let why = "nothing to limit: the program left no snapshot: it used no CUDA, or was killed";
    assert_eq!(ran.stderr, format!("cachealloc: {why}\n"));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn holders_above_the_limit_are_named() {
    let place = Place::new();
    let ran = limited(&place, "--max-peak 38M --max-leak 0", &planted("2"));
    assert_eq!(ran.code, Some(122), "{ran:?}");
    let sizes = ["38.1 MiB at the peak, but --max-peak allows 38.0 MiB", "6.00 MiB never freed"];
    assert!(sizes.iter().all(|size| ran.stderr.contains(size)), "{ran:?}");
    assert_eq!(
        masked(&said(&ran)),
        "\
cachealloc: process #, device #: # MiB at the peak, but --max-peak allows # MiB; by call site:
cachealloc: # MiB in # blocks, app: get record/planted.c:# < load_weights record/planted.c:# < main record/planted.c:#
cachealloc: # MiB in # blocks, app: get record/planted.c:# < leak record/planted.c:# < main record/planted.c:#
cachealloc: # KiB in # block, app: get record/planted.c:# < burst record/planted.c:# < main record/planted.c:#
cachealloc: process #, device #: # MiB never freed, but --max-leak allows # B; by call site:
cachealloc: # MiB in # blocks, app: get record/planted.c:# < leak record/planted.c:# < main record/planted.c:#
"
    );
    assert_eq!(place.names(), [""; 0]);
    // Amounts that differ are printed differently, and a report is written as well.
    let ran = limited(&place, "--max-leak 6143K --report a.html", &planted("2"));
    let sizes = "6,291,456 B never freed, but --max-leak allows 6,290,432 B";
    assert!(ran.code == Some(122) && ran.stderr.contains(sizes), "{ran:?}");
    assert!(ran.stderr.contains("report: a.html"), "{ran:?}");
    assert_eq!(place.names(), ["a.html", "a.pickle"]);
}

/// The exceeded limit is reported, but the exit code is the program's own failure.
#[test]
fn the_programs_own_failure_counts_more() {
    let place = Place::new();
    for (script, code) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        let ran = limited(&place, "--max-leak 0", &format!("{}; {script}", planted("2")));
        assert!(ran.stderr.contains("6.00 MiB never freed"), "{ran:?}");
        assert_eq!(ran.code, Some(code), "{script}");
    }
    // With several processes, each is checked separately.
    let both = format!("{}; {}", planted("1"), planted("2"));
    let ran = limited(&place, "--max-leak 3M", &both);
    assert_eq!((ran.stderr.matches("never freed").count(), ran.code), (1, Some(122)), "{ran:?}");
    assert_eq!(place.names(), [""; 0]);
}

/// Holds 2 MiB.
const HOLD: &str = "
import ctypes, os, sys
driver = ctypes.CDLL('libcuda.so.1')
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2 << 20)) == 0
";

/// The last of several snapshots of a process counts, and only one from its end shows what was
/// left.
#[test]
fn the_last_snapshot_of_a_process_counts() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let run = |flags: &str, then: &str| {
        let run = cachealloc(&format!("run {flags} -- sh -c"));
        let script =
            format!("{HOLD}snapshot = lambda: ctypes.CDLL(None).cachealloc_snapshot(None)\n{then}");
        let ignored = "python3 -c \"$0\" || true";
        place.run(&run.arg(ignored).arg(script))
    };
    let eleven = "assert [snapshot() for _ in range(11)] == [0] * 11";
    let ran = run("--max-leak 1M", eleven);
    assert!(ran.code == Some(122) && ran.stderr.matches("never freed").count() == 1, "{ran:?}");
    let killed = "assert snapshot() == 0\nos.kill(os.getpid(), 9)";
    run("--max-leak 0 --max-peak 2M", killed).ok();
    let ran = run("--max-leak 0 --max-peak 1M", killed);
    assert!(ran.code == Some(122) && !ran.stderr.contains("never freed"), "{ran:?}");
}

/// A library that holds 5 MiB in a program that holds 2 MiB itself.
#[test]
fn memory_of_one_library() {
    if lacks("python3") {
        return;
    }
    const ASK: &str = "ctypes.CDLL(sys.argv[1]).allocate(ctypes.c_size_t(5 << 20))";
    let place = Place::new();
    let library = compile_library("transparency_plugin.c", "plugins/libheld.so", &[]);
    let run = |flags: &str| {
        let run = cachealloc(&format!("run --max-leak 3M {flags} -- python3 -c"));
        place.run(&run.arg(format!("{HOLD}{ASK}")).arg(&library))
    };
    for only in ["", "--only-library libheld.so", "--only-library libHELD"] {
        let ran = run(only);
        let blame = "5.00 MiB in 1 block, libheld: allocate ";
        assert!(ran.code == Some(122) && ran.stderr.contains(blame), "{only}: {ran:?}");
        assert_eq!(ran.stderr.contains("2.00 MiB in 1 block"), only.is_empty(), "{ran:?}");
    }
    let ran = run("--only-library librmm.so").ok();
    assert_eq!(said(&ran), "cachealloc: nothing to limit: RMM holds no memory\n");
    assert_eq!(run("--only-library app").code, Some(0));
}

#[test]
fn unchecked_limit_is_not_a_success() {
    let place = Place::new();
    let flags = "--max-peak 64M --max-entries 100";
    let ran = limited(&place, flags, &planted("2"));
    let why = "cannot check --max-peak for process #: the oldest # entries of its history are lost; keep more with \
               --max-entries, and record from the start\n";
    assert!(ran.code == Some(125) && masked(&said(&ran)).ends_with(why), "{ran:?}");
    // The end is known without the dropped entries.
    limited(&place, "--max-leak 6M --max-entries 100", &planted("2")).ok();
    for (flags, why) in [
        ("--max-peak 4", "expected a size such as 4G or 512M, or 0"),
        ("--max-leak lots", "expected a size such as 4G or 512M, or 0"),
        ("--only-library libcudart.so", "it passes requests on and holds no memory itself"),
        (
            "--only-library app",
            "--only-library has no effect without a limit; add --max-peak or --max-leak",
        ),
        (
            "--max-peak 1G --record=state",
            "cannot use --max-peak with --record=state: it needs the history",
        ),
        (
            "--max-leak 1G --record=off",
            "cannot use --max-leak with --record=off: it needs the history; omit one of them",
        ),
        ("--max-leak 1G --snapshot a", "cannot use --max-leak with --snapshot"),
    ] {
        let ran = limited(&place, flags, "echo started");
        assert!(ran.stderr.contains(why), "{flags}: {ran:?}");
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)), "{flags}");
    }
    let run = Run::program(cachealloc_tests::command()).native().env("CACHEALLOC", "0");
    let ran = run.args("run --max-leak 0 -- true").output();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(place.names(), [""; 0]);
}

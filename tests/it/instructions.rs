//! What the library adds to a call, in instructions: repeatable where times are not. The bounds
//! leave room for a compiler's whim, not for a lock, an allocation or a look-up more.

use std::process::Command;

use cachealloc_tests::{compile, compile_library, release_library, skipped};

/// Calls, what is recorded, and at most so many instructions for one round of them under the
/// library. Each of our functions begins with two instructions that a tool which patches functions
/// can move, and a jump.
const BOUNDS: [(&str, &str, u64); 11] = [
    ("pair", "off", 256),
    ("launch", "off", 118),
    // Between addresses of one large block, as of a program with an allocator of its own.
    ("copy", "off", 105),
    ("fill", "off", 104),
    ("graph", "off", 86),
    // Recorded, waited for by a stream and asked.
    ("event", "off", 200),
    // A barrier each time, and before each launch a look whether anything captures.
    ("pair-and-launch", "off", 792),
    // The same in stream order: an event each time.
    ("async", "off", 3_340),
    // Eight blocks of different sizes, each of which comes again: a list for each, not the core.
    ("mixed", "off", 4_200),
    // Three ranges, entered and left.
    ("range", "off", 80),
    ("range", "all", 605),
];

#[test]
#[ignore = "long tier"]
fn calls_stay_cheap() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("valgrind is not installed");
    }
    for (kind, record, bound) in BOUNDS {
        let count = if bound < 5_000 { 40_000 } else { 2_000 };
        let added = instructions(kind, record, count) / count;
        println!("{kind}, record:{record}: {added} instructions");
        assert!(added <= bound, "{kind}: {added} instructions, at most {bound} wanted");
    }
}

/// Of the thread that makes the calls, after as many again as warm it up: what a thread of ours
/// does meanwhile does not count.
fn instructions(kind: &str, record: &str, count: u64) -> u64 {
    let driver = compile_library("idle_driver.c", "driver_idle/libcuda.so.1", &[]);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=counted"])
        .arg(compile("calls.c"))
        .args([kind, &count.to_string()])
        .env("LD_PRELOAD", release_library())
        .env("LD_LIBRARY_PATH", driver.parent().expect("it has a folder"))
        .env("CACHEALLOC_CONF", format!("record:{record},snapshot:/dev/null/no,free_mode:ordered"))
        .output()
        .expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{kind}: {said}");
    let line = said.lines().find(|line| line.contains("Collected")).expect("a count");
    line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
}

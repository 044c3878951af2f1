//! Instructions that the library adds to a call, which are repeatable where times are not. The
//! bounds allow for differences between compilers, but not for an additional lock, allocation or
//! look-up.

use std::path::PathBuf;
use std::process::Command;

use cachealloc_tests::{compile, compile_library, release_library, skipped};

/// Calls, the value of `record` with the options after it, and the maximum number of instructions
/// for one round of the calls under the library. Each function of the library begins with two
/// instructions that a function-patching tool can move, and a jump.
const BOUNDS: [(&str, &str, u64); 18] = [
    ("pair", "off", 224),
    ("launch", "off", 73),
    // Launches that the driver refuses, and launches of a kernel with one argument while pinned
    // memory is alive, for which the argument is searched.
    ("refused", "off", 120),
    ("launch-pinned", "off", 195),
    ("refused-pinned", "off", 303),
    // Copies between addresses of one large block, as in a program with its own allocator.
    ("copy", "off", 103),
    ("fill", "off", 104),
    ("graph", "off", 86),
    // An event is recorded, waited for by a stream, and queried.
    ("event", "off", 199),
    // Makes a barrier each time, and before each launch checks whether anything captures.
    ("pair-and-launch", "off", 710),
    // Allocates and frees in stream order: an event each time.
    ("async", "off", 3_320),
    // Eight blocks of different sizes, each of which is reused from its own thread cache, without
    // the core.
    ("mixed", "off", 3_700),
    // A pair of each of 64 sizes in turn. The cache first grows to hold a block of each.
    ("turns", "off", 35_000),
    // Three ranges are entered and left.
    ("range", "off", 80),
    ("range", "all", 600),
    // A pair below 30 frames of the program, whose stacks are recorded.
    ("below", "all", 3_850),
    // The driver serves all requests, and the library notes them.
    ("pair", "off,cache:false", 2_250),
    ("async", "off,cache:false", 2_560),
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

/// Instructions added to a process that never starts CUDA. Most are the loader's, and depend on the
/// C library, on the names of the environment, and on where the names of the C library's versions
/// lie: in the last 16 bytes of a cache line, comparing them takes 5,400 more.
#[test]
#[ignore = "long tier"]
fn processes_without_cuda_start_quickly() {
    const ADDED_MAX: u64 = 215_000;
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("valgrind is not installed");
    }
    let counted = |library: Option<PathBuf>| -> u64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "/bin/true"])
            .envs(library.map(|library| ("LD_PRELOAD", library)))
            .output()
            .expect("valgrind runs");
        assert!(output.status.success(), "{output:?}");
        collected(&output.stderr)
    };
    let added = counted(Some(release_library())) - counted(None);
    println!("start: {added} instructions");
    assert!(added <= ADDED_MAX, "{added} instructions, at most {ADDED_MAX} wanted");
}

/// Returns the count that callgrind has printed.
fn collected(said: &[u8]) -> u64 {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().find(|line| line.contains("Collected")).expect("a count");
    line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
}

/// Counts the instructions of the thread that makes the calls, after the same number of calls as
/// warm-up. Instructions of the library's threads do not count.
fn instructions(kind: &str, record: &str, count: u64) -> u64 {
    let driver = match kind.starts_with("refused") {
        true => compile_library("idle_driver.c", "driver_refuses/libcuda.so.1", &["-DLAUNCHED=1"]),
        false => compile_library("idle_driver.c", "driver_idle/libcuda.so.1", &[]),
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=counted"])
        .arg(compile("calls.c"))
        .args([kind, &count.to_string()])
        .env("LD_PRELOAD", release_library())
        .env("LD_LIBRARY_PATH", driver.parent().expect("it has a folder"))
        // Makes the C library copy in the same way on every x86-64 processor: with AVX2 a range
        // takes 9 instructions less.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM")
        .env("CACHEALLOC_CONF", format!("record:{record},snapshot:/dev/null/no,free_mode:ordered"))
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    collected(&output.stderr)
}

//! Memory and time that must not grow with the arguments of kernels, with kernels, or with threads.

use std::path::PathBuf;
use std::process::Command;

use cachealloc_tests::{
    Run, compile, compile_library, compile_with, library, release_library, skipped, tier,
};

/// Launches beside pinned memory whose arguments are addresses between pinned ones, with the
/// maximum number of instructions for each launch, including the program's own.
const LAUNCHES: [(&str, u64); 4] =
    [("eight", 300), ("struct", 420), ("table", 8_800), ("low", 8_800)];

fn idle_driver() -> PathBuf {
    let driver = compile_library("idle_driver.c", "driver_idle/libcuda.so.1", &[]);
    driver.parent().expect("it has a folder").into()
}

fn launches() -> PathBuf {
    compile_with("launches.c", "launches", &["-rdynamic"])
}

/// Returns the number that a program prints.
fn printed(program: PathBuf, arguments: &[&str]) -> i64 {
    let output = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", idle_driver())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

#[test]
#[ignore = "long tier"]
fn scan_of_arguments_is_fast() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("valgrind is not installed");
    }
    for (kind, bound) in LAUNCHES {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg("--toggle-collect=counted")
            .arg(launches())
            .args([kind, "1000"])
            .env("LD_PRELOAD", release_library())
            .env("LD_LIBRARY_PATH", idle_driver())
            .output()
            .expect("valgrind runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{kind}: {said}");
        let line = said.lines().find(|line| line.contains("Collected")).expect("a count");
        let count = line.split_whitespace().last().and_then(|word| word.parse::<u64>().ok());
        let each = count.expect("a number") / 1000;
        println!("{kind}: {each} instructions");
        assert!(each <= bound, "{kind}: {each} instructions, at most {bound} wanted");
    }
}

/// The library looks up which library launches a kernel only at the kernel's first launch beside
/// pinned memory, and again after a module was unloaded.
#[test]
fn first_launches_do_not_ask_the_system_each_time() {
    let links_read = printed(launches(), &["first", "100"]);
    // The program's link is read once; the other reads happen at the start.
    assert!(links_read <= 4, "{links_read} links were read");
}

/// Threads that are created and end, with a thread cache each, leave nothing allocated.
#[test]
fn ended_threads_leave_no_memory() {
    let count: u32 = tier::count(10_000, 100_000);
    let grown_kb = printed(compile("threads_again.c"), &[&count.to_string()]);
    println!("{count} threads: {grown_kb} KiB");
    assert!(grown_kb < 1_000, "{grown_kb} KiB are left");
}

/// Blocks of several sizes in separate thread caches count as free, belong to one thread each, and
/// are all released.
#[test]
fn several_sizes_are_counted_exactly() {
    for threads in ["1", "5"] {
        let ran = Run::c("several_sizes.c").arg(threads).output().ok();
        assert_eq!(ran.stdout.trim(), "exact");
        assert_eq!(ran.report.races(), 0);
    }
}

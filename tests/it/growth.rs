//! What grows with the work, and must not.

use std::process::Command;

use cachealloc_tests::{compile, compile_library, library, tier};

/// Host memory follows the blocks that live, not the places where blocks ever began.
#[test]
fn host_memory_follows_live_blocks() {
    let driver = compile_library("idle_driver.c", "driver_idle/libcuda.so.1", &[]);
    let grown_kb = |count: u64| -> u64 {
        let output = Command::new(compile("growth.c"))
            .arg(count.to_string())
            .env("LD_PRELOAD", library())
            .env("LD_LIBRARY_PATH", driver.parent().expect("it has a folder"))
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        said.trim().parse().expect("a number")
    };
    let few = grown_kb(20_000);
    let many = grown_kb(tier::count(200_000, 2_000_000));
    println!("{few} KiB, then {many} KiB");
    // Its thousand blocks lie on no more pages than that, and some empty ones stay.
    assert!(many < few + 4_096, "{few} KiB grow to {many} KiB");
}

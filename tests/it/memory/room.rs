//! Traces of real programs under the library, on devices that are barely larger than the memory
//! they hold.

use cachealloc_tests::{Run, root};

fn completes(trace: &str, device_mib: u64, settings: &str) -> bool {
    let path = root().join("tests/data/traces").join(format!("{trace}.txt"));
    let run = Run::program(env!("CARGO_BIN_EXE_replay")).arg(path);
    let run = run.env("SIM_MEMORY_MB", device_mib.to_string()).conf(settings);
    run.output().code == Some(0)
}

/// Returns the sizes with which the trace fails.
fn failing(trace: &str, sizes: impl Iterator<Item = u64>, run: impl Fn(u64) -> bool) -> String {
    let failed: Vec<u64> = sizes.filter(|size| !run(*size)).collect();
    if failed.is_empty() { String::new() } else { format!("{trace} fails at {failed:?} MiB\n") }
}

/// An arena reserves twice as many addresses as the device has bytes. They must suffice, however
/// the program's blocks move within them.
#[test]
fn addresses_last_on_a_device_of_any_size() {
    let mut problems = String::new();
    for trace in ["mm_A", "mm_D", "mm_F"] {
        problems += &failing(trace, (1_045..1_420).step_by(25), |device_mib| {
            completes(trace, device_mib, "expandable_segments:true")
        });
    }
    assert!(problems.is_empty(), "{problems}");
}

/// The trace holds 1,656.5 MiB. It once failed with limits of 1.017 to 1.09 times that.
#[test]
fn inference_completes_within_all_limits() {
    const TRACE: &str = "snap_Weds_medium_128_inference";
    let within = |limit_mib| completes(TRACE, 32_768, &format!("gpu_memory_limit_mb:{limit_mib}"));
    let problems = failing(TRACE, (1_670..1_830).step_by(10), within);
    assert!(problems.is_empty(), "{problems}");
}

/// Without the library 1,036 and 998 MiB are enough. The library once needed 1,168 and 1,268 MiB.
#[test]
fn large_requests_find_nearly_all_of_a_device() {
    let device = |trace, sizes| failing(trace, sizes, |size| completes(trace, size, ""));
    let problems =
        device("mm_A", (1_075..1_300).step_by(25)) + &device("mm_D", (1_060..1_300).step_by(30));
    assert!(problems.is_empty(), "{problems}");
}

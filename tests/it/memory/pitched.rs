//! Pitched memory from the cache. The program gets the driver's answers, and the driver is asked
//! only for the first request of each width.

use cachealloc_tests::{Ran, Run};

fn run(pitch_bytes: &str) -> Run {
    Run::c("pitched.c").env("SIM_PITCH_BYTES", pitch_bytes)
}

fn asked(ran: &Ran) -> u64 {
    ran.report.calls("cuMemAllocPitch_v2")
}

/// Six widths with three element sizes, and requests that only the driver can refuse.
const FIRST_ONES: u64 = 6 * 3 + 3;

#[test]
fn pitch_of_a_width_is_queried_once() {
    for pitch_bytes in ["512", "100"] {
        let native = run(pitch_bytes).native().output().ok();
        for conf in ["free_mode:ordered", "free_mode:strict", "expandable_segments:true"] {
            let ours = run(pitch_bytes).conf(conf).output().ok();
            assert_eq!(ours.stdout, native.stdout, "{conf}");
            assert_eq!(ours.report.races(), 0, "{conf}");
            assert!(asked(&ours) <= FIRST_ONES, "{} of {}", asked(&ours), asked(&native));
        }
    }
}

#[test]
fn without_a_cache_the_driver_is_asked_each_time() {
    let native = run("512").native().output().ok();
    for conf in ["fraction_of_gpu_memory_to_use:0", "cache:false"] {
        let ours = run("512").conf(conf).output().ok();
        assert_eq!(ours.stdout, native.stdout, "{conf}");
        // A request that the driver refuses is not repeated either.
        assert_eq!(asked(&ours), asked(&native), "{conf}");
    }
}

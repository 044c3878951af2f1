//! The library reuses freed pinned memory. The program gets the driver's answers, and the driver is
//! called once for each shape.

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Ran, Run};

fn run(conf: &str) -> Ran {
    Run::c("pinned_again.c").conf(conf).output().ok()
}

fn made(ran: &Ran) -> u64 {
    ran.report.calls("cuMemHostAlloc") + ran.report.calls("cuMemAllocHost_v2")
}

#[test]
fn the_driver_is_asked_once_for_each_shape() {
    let native = Run::c("pinned_again.c").native().output().ok();
    for (conf, calls) in [
        // Four sizes, each with eight flags and twice at once by the other function, and two
        // refused requests.
        ("free_mode:ordered", 4 * (8 + 2) + 2),
        ("free_mode:relaxed", 4 * (8 + 2) + 2),
        ("free_mode:strict", made(&native)),
        ("host_cache_mb:0", made(&native)),
        ("fraction_of_gpu_memory_to_use:0", made(&native)),
    ] {
        let ours = run(conf);
        assert_eq!(ours.stdout, native.stdout, "{conf}");
        assert_eq!((made(&ours), ours.report.races()), (calls, 0), "{conf}");
    }
}

/// A launch with too many blocks is refused, which is not a fault: everything continues as before.
#[test]
fn a_refused_launch_changes_nothing() {
    let run = Run::c("pinned_again.c").env("SIM_FAIL", "cuLaunchCooperativeKernel@1=720");
    assert_eq!(made(&run.output().ok()), 4 * (8 + 2) + 2);
}

/// Host memory may run short in a context other than the one that retains it.
#[test]
fn kept_memory_is_released_for_another_context() {
    let frees = |broken: &str| {
        let run = Run::c("pinned_again.c").args("20 elsewhere").env("CACHEALLOC_BREAK", broken);
        run.env("SIM_FAIL", "cuMemHostAlloc@21=2").output().report.calls("cuMemFreeHost")
    };
    assert_eq!((frees(""), frees(Rule::KeptIsReleasedInAnyContext.name())), (20, 0));
}

/// The library retains at most a fixed number of pieces and bytes.
#[test]
fn kept_memory_is_bounded() {
    let frees = |shapes: &str, conf: &str| {
        let ran = Run::c("pinned_again.c").args(shapes).conf(conf).output().ok();
        ran.report.calls("cuMemFreeHost")
    };
    assert_eq!(frees("200", "free_mode:ordered"), 0);
    // 256 of 300 are retained: each round finds none of those that it needs next.
    assert!((88..=600).contains(&frees("300", "free_mode:ordered")));
    // One mebibyte holds about 150 of them.
    let full = frees("200", "host_cache_mb:1");
    assert!((50..=400).contains(&full));
    // A reused piece counts once: each of 60 others displaces an older one.
    assert!(frees("200 60", "host_cache_mb:1") >= full + 60);
}

/// Host memory may be short because of the memory that the library retains.
#[test]
fn kept_memory_is_released_under_pressure() {
    let run = Run::c("pinned_again.c").arg("20").env("SIM_FAIL", "cuMemHostAlloc@21=2");
    let ran = run.output().ok();
    assert_eq!((ran.report.calls("cuMemHostAlloc"), ran.report.calls("cuMemFreeHost")), (22, 20));
    let run = Run::c("pinned_again.c").args("20 registered");
    let ran = run.env("SIM_FAIL", "cuMemHostRegister_v2@1=2").output().ok();
    assert_eq!(ran.report.calls("cuMemFreeHost"), 20);
}

/// If another thread frees memory while its context ends, the next context may already use the
/// address.
#[test]
fn nothing_is_kept_of_a_context_that_has_ended() {
    let taken = |broken: &str| {
        let run = Run::c("pinned_at_end.c").conf("host_cache_mb:1");
        run.env("CACHEALLOC_BREAK", broken).output().ok().stdout
    };
    assert_eq!(taken(""), "taken 0\n");
    let name = Rule::KeptWhileOpen.name();
    assert!((0..50).any(|_| taken(name) != "taken 0\n"), "the rule is not needed");
}

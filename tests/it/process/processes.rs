//! Forks, exits, threads that end, plugins that are closed: the library must not hang, print twice
//! or fail if the program alone does not.

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Ran, Run, compile_library, compile_with, library};

use crate::record::snapshots::Place;

fn way(name: &str) -> Run {
    Run::c("process.c").arg(name)
}

/// Checks for the same output and exit code with and without the library.
#[track_caller]
fn same(run: &Run) -> Ran {
    let native = run.clone().native().output();
    let ours = run.output();
    assert_eq!((&native.stdout, native.code), (&ours.stdout, ours.code), "{native:#?}\n{ours:#?}");
    ours
}

#[test]
fn a_child_forked_before_cuda_is_served_and_so_is_its_parent() {
    let ran = way("fork_before").conf("stats_on_exit:stderr").output().ok();
    assert!(ran.report.calls("cuMemAlloc_v2") <= 2 * 16, "{:#?}", ran.report);
    let tables = ran.stderr.matches("allocations served").count();
    assert_eq!(tables, 2, "one table for each process: {}", ran.stderr);
}

#[test]
fn child_forked_after_cuda_fails_and_its_parent_continues() {
    let ran = same(&way("fork_after")).ok();
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_forked_child_that_exits_prints_no_table() {
    let ran = way("fork_and_exit").conf("stats_on_exit:stderr").output().ok();
    assert_eq!(ran.stderr.matches("allocations served").count(), 1, "{}", ran.stderr);
}

#[test]
fn threads_come_and_go() {
    let ran = same(&way("threads_end")).ok();
    assert_eq!(ran.report.races(), 0);
}

/// The record of a context is larger than some threads' stacks.
#[test]
fn a_thread_with_little_stack_may_allocate_first() {
    for conf in
        ["free_mode:ordered", "record:all", "expandable_segments:true", "fill:zero,red_zone:64"]
    {
        let place = Place::new();
        same(&way("small_stack").folder(&place.path).conf(conf)).ok();
    }
}

/// The C library takes thread-local data from each thread's stack. Here it takes nearly all of the
/// stack of the library's thread, or more than there is.
#[test]
fn a_program_may_have_much_thread_local_data() {
    for kib in [1900, 2000, 2024, 2032, 2036, 4096] {
        let program =
            compile_with("large_tls.c", &format!("much_local_{kib}"), &[&format!("-DKIB={kib}")]);
        let place = Place::new();
        let run = Run::program(program);
        let (native, ours) = (place.run(&run.clone().native()), place.run(&run.clone()));
        assert_eq!((native.code, native.stdout), (ours.code, ours.stdout), "{kib}");
        assert_eq!(ours.stderr, "", "{kib}");
        let recorded = place.run(&run.conf("record:all,log:quiet"));
        assert_eq!((recorded.code, &*recorded.stderr), (Some(3), ""), "{kib}");
        place.sound(1..=1, &["--from-start"]);
    }
}

/// A library that is opened instead of preloaded may have its thread-local data anywhere, or at a
/// fixed distance where the loader has kept room for that.
#[test]
fn the_library_may_be_opened_late() {
    for room in [0, 1 << 14] {
        let tunable = format!("glibc.rtld.optional_static_tls={room}");
        let run = Run::c("opened_late.c").arg(library()).native();
        let ran = run.env("GLIBC_TUNABLES", tunable).conf("stats_on_exit:stderr").output().ok();
        assert_eq!(ran.stdout, "done\n");
        let served = ran.stderr.lines().find(|line| line.contains("allocations served"));
        assert!(served.is_some_and(|line| line.ends_with("5,000")), "{}", ran.stderr);
    }
}

#[test]
fn every_way_of_ending_keeps_its_exit_code() {
    for (name, code) in [("_exit", 3), ("quick_exit", 4), ("abort", 134)] {
        let ran = same(&way(name).conf("stats_on_exit:stderr"));
        assert_eq!(ran.code, Some(code), "{name}: {ran:#?}");
    }
}

/// Text that a kernel has printed is flushed by the next free, or at the end of the process if that
/// free did not wait.
#[test]
fn kernel_output_is_complete_at_exit() {
    for how in ["main", "exit", "quick", "_exit", "told", "joined"] {
        for mode in ["ordered", "relaxed"] {
            let run = Run::c("kernel_text.c").arg(how).conf(&format!("free_mode:{mode}"));
            let ran = same(&run).ok();
            assert_eq!(ran.stdout, "the kernel says 1\n", "{how}, {mode}: {ran:#?}");
        }
        let broken = [Rule::EndWaits, Rule::ThreadOutlivesItsBarriers].map(Rule::name).join(",");
        let broken = Run::c("kernel_text.c").arg(how).env("CACHEALLOC_BREAK", broken).output();
        assert_eq!(broken.stdout, "", "{how}: {broken:#?}");
    }
    for mode in ["ordered", "relaxed"] {
        let run = Run::c("kernel_text.c").arg("destroyed").conf(&format!("free_mode:{mode}"));
        let ran = same(&run).ok();
        assert_eq!(ran.stdout, "the kernel says 1\n", "beside an end, {mode}: {ran:#?}");
    }
    // A watchdog thread ends the process although the thread that waits for the kernel never
    // returns.
    let run = Run::c("kernel_text.c").arg("watchdog").env("SIM_DEADLOCK_MS", "600000");
    for mode in ["ordered", "relaxed"] {
        let ran = same(&run.clone().conf(&format!("free_mode:{mode}")));
        assert_eq!(ran.stdout, "ends\n", "{mode}: {ran:#?}");
    }
    let broken = run.env("CACHEALLOC_BREAK", "others_end_for_a_while").output();
    assert_eq!(broken.stdout, "stays\n", "{broken:#?}");
    // A signal handler may have interrupted the driver, so `_exit` does not wait there.
    let ran = Run::c("kernel_text.c").arg("handler").env("SIM_TEARDOWN_MS", "50").output().ok();
    assert_eq!(ran.stdout, "", "{ran:#?}");
}

/// `_exit` runs no handlers, and interpreters use it. A child between `vfork` and `exec` also ends
/// by it, in its parent's memory.
#[test]
fn leaving_at_once_still_prints_one_table() {
    for (name, code) in [("_exit", 3), ("vfork_exit", 0)] {
        let ran = way(name).conf("stats_on_exit:stderr").output();
        assert_eq!(ran.code, Some(code), "{ran:#?}");
        assert_eq!(ran.stderr.matches("allocations served").count(), 1, "{}", ran.stderr);
    }
}

/// A child that shares its parent's memory announces a seccomp filter, which does not concern the
/// parent.
#[test]
fn a_filter_of_a_child_does_not_silence_its_parent() {
    let ran = same(&way("vfork_seals")).ok();
    assert!(ran.stderr.contains("out of memory"), "{}", ran.stderr);
}

#[test]
fn a_thread_may_end_the_process_while_others_allocate() {
    for _ in 0..5 {
        let ran = way("exit_from_thread").conf("stats_on_exit:stderr").output();
        assert_eq!(ran.code, Some(7), "{ran:#?}");
    }
}

#[test]
fn memory_may_be_freed_by_exit_handlers() {
    same(&way("free_at_exit").conf("stats_on_exit:stderr")).ok();
}

#[test]
fn a_program_may_become_another_one() {
    let ran = same(&way("exec")).ok();
    assert_eq!(ran.stdout, "used\n");
}

#[test]
fn a_plugin_that_used_cuda_may_be_closed() {
    let plugin = compile_library("process_plugin.c", "libprocess_plugin.so", &["-ldl"]);
    let ran = same(&way("close_plugin").arg(plugin)).ok();
    assert!(ran.report.calls("cuMemAlloc_v2") <= 16, "{:#?}", ran.report);
}

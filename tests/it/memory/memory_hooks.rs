//! Memory hooks: the order and arguments of their callbacks, and that callbacks harm no other
//! thread.

use std::path::PathBuf;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Ran, Run, compile_library, driver_folder};

use crate::ordering::hazards::problems;

fn hooked(what: &str) -> Run {
    what.split(' ').fold(Run::c("memory_hooks.c"), Run::arg)
}

#[track_caller]
fn hears(what: &str, wanted: &str) {
    let ran = hooked(what).output().ok();
    let wanted: String = wanted.lines().map(|line| format!("{}\n", line.trim())).collect();
    assert_eq!(ran.stdout, wanted.trim_start());
    assert_eq!(ran.stderr, "");
}

/// The callbacks have CuPy's order and arguments. `#1 #2`: address and id of a block, numbered as
/// they first appear.
#[test]
fn hooks_see_allocations_and_frees_in_order() {
    hears(
        "order",
        "A malloc_pre 0 1000 1024
        A alloc_pre 0 2097152
        A alloc_post 0 2097152 there
        A malloc_post 0 1000 1024 #1 #2
        A malloc_pre 0 100 512
        B malloc_pre 0 100 512
        A malloc_post 0 100 512 #3 #4
        B malloc_post 0 100 512 #3 #4
        B free_pre 0 1024 #1 #2
        B free_post 0 1024 #1 #2",
    );
}

/// Callbacks report every request to the driver; a failed one has neither address nor id. For the
/// third request little memory is left: the library asks only for what the program itself would
/// have.
#[test]
fn hooks_see_failures() {
    let ran = hooked("failure").conf("log:quiet").env("SIM_MEMORY_MB", "100").output().ok();
    let wanted = "
        A malloc_pre 0 209715200 209715200
        A alloc_pre 0 209715200
        A alloc_post 0 209715200 none
        A malloc_post 0 209715200 209715200 #0 #0
        A malloc_pre 0 99614720 99614720
        A alloc_pre 0 100663296
        A alloc_post 0 100663296 there
        A malloc_post 0 99614720 100663296 #1 #2
        A malloc_pre 0 8388608 8388608
        A alloc_pre 0 8388608
        A alloc_post 0 8388608 none
        A malloc_post 0 8388608 8388608 #0 #0";
    let said: Vec<_> = ran.stdout.lines().collect();
    let wanted: Vec<_> = wanted.trim_start().lines().map(str::trim).collect();
    assert_eq!(said, wanted);
}

/// Stream-ordered memory of the library, and of a pool that the program has created, which the
/// driver serves. Driver memory from before the hook was registered has no known size, and is not
/// reported.
#[test]
fn hooks_see_stream_ordered_memory() {
    hears(
        "async",
        "A malloc_pre 0 3000 3072
        A alloc_pre 0 2097152
        A alloc_post 0 2097152 there
        A malloc_post 0 3000 3072 #1 #2
        A free_pre 0 3072 #1 #2
        A free_post 0 3072 #1 #2
        A malloc_pre 0 3000 3072
        A malloc_post 0 3000 3072 #1 #3
        A free_pre 0 3072 #1 #3
        A free_post 0 3072 #1 #3
        A malloc_pre 0 5000 5120
        A alloc_pre 0 5000
        A alloc_post 0 5000 there
        A malloc_post 0 5000 5000 #4 #5
        A free_pre 0 5000 #4 #5
        A free_post 0 5000 #4 #5",
    );
}

/// The second free is not reported, and neither was the allocation that it frees.
#[test]
fn reused_address_is_other_memory() {
    hears(
        "unheard",
        "A malloc_pre 0 5000 5120
        A alloc_pre 0 5000
        A alloc_post 0 5000 there
        A malloc_post 0 5000 5000 #1 #2",
    );
}

/// Memory nodes, added by a capture and by hand, and memory that the cache serves in a capture,
/// which survives.
#[test]
fn hooks_see_graph_memory() {
    hears(
        "capture",
        "A other_allocated 0 6 3000 #1 #2
        A other_freed 0 6 3000 #1 #2
        A malloc_pre 0 1000 1024
        A alloc_pre 0 2097152
        A alloc_post 0 2097152 there
        A malloc_post 0 1000 1024 #3 #4
        A free_pre 0 1024 #3 #4
        A free_post 0 1024 #3 #4
        A other_allocated 0 6 8000 #5 #6
        A other_freed 0 6 8000 #5 #6
        A other_allocated 0 6 8000 #7 #8
        done",
    );
}

/// Managed memory, pinned and registered memory, an array, and physical memory with a mapping,
/// which is removed first.
#[test]
fn hooks_see_other_kinds_of_memory() {
    hears(
        "kinds",
        "A other_allocated 0 1 1000 #1 #2
        A other_freed 0 1 1000 #1 #2
        A other_allocated -1 2 2000 #1 #3
        A other_freed -1 2 2000 #1 #3
        A other_allocated -1 2 8192 #4 #5
        A other_freed -1 2 8192 #4 #5
        A other_allocated 0 3 65536 #6 #7
        A other_freed 0 3 65536 #6 #7
        A other_allocated 0 4 4194304 #8 #9
        A other_allocated 0 5 4194304 #10 #11
        A other_freed 0 5 4194304 #10 #11
        A other_freed 0 4 4194304 #8 #9",
    );
}

#[test]
fn hooks_see_pitched_memory_as_linear_memory() {
    hears(
        "pitched",
        "A malloc_pre 0 1000 1024
        A alloc_pre 0 1000
        A alloc_post 0 1000 there
        A malloc_post 0 1000 5120 #1 #2
        A free_pre 0 5120 #1 #2
        A free_post 0 5120 #1 #2
        A malloc_pre 0 1000 1024
        A alloc_pre 0 1000
        A alloc_post 0 1000 there
        A malloc_post 0 1000 5120 #1 #3
        A free_pre 0 5120 #1 #3
        A free_post 0 5120 #1 #3",
    );
}

#[test]
fn callbacks_for_other_kinds_may_allocate_them() {
    hears("nested", "heard 2");
}

/// A table as long as that of the first header, and one that ends inside a callback.
#[test]
fn a_table_of_an_older_header_is_read() {
    hears(
        "older",
        "A malloc_pre 0 1000 1024
        A alloc_pre 0 2097152
        A alloc_post 0 2097152 there
        A malloc_post 0 1000 1024 #1 #2
        A other_allocated -1 2 2000 #3 #4",
    );
}

/// Four threads run hooks that allocate and free in each of the six callbacks, while memory is
/// short: there is no deadlock, no hook runs inside a hook, and nothing is lost.
#[test]
fn callbacks_may_allocate() {
    for mode in ["ordered", "strict", "relaxed"] {
        let conf = format!("log:quiet,free_mode:{mode}");
        let ran = hooked("reentrant").conf(&conf).env("SIM_MEMORY_MB", "100").output().ok();
        assert_eq!((&*ran.stdout, &*ran.stderr), ("done\n", ""), "{mode}");
        assert_eq!(ran.report.races(), 0, "{}", ran.report.text);
    }
}

/// The cache, not the driver, serves allocations in callbacks: they are as fast as others.
#[test]
fn allocations_in_callbacks_are_served() {
    let ran = hooked("served").output().ok();
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(ran.report.calls("cuMemAlloc_v2"), 3, "{}", ran.report.text);
}

/// No lock is held while a callback runs: it may wait for a thread that requests memory.
#[test]
fn callbacks_may_wait_for_others() {
    hears("waiting", "done");
}

/// In every kind of capture, global (0), of its thread (1) and relaxed (2). The cache has a segment
/// of which a part is free.
#[test]
fn callbacks_may_do_so_in_a_capture() {
    let run = |what: &str, capture: &str, mode: &str| {
        let conf = "strategy:pre_allocate,initial_gpu_memory_in_mb:64,log:quiet,free_mode";
        let run = Run::c("hooks_in_capture.c").arg(what).arg(capture);
        let ran = run.conf(&format!("{conf}:{mode}")).env("SIM_MEMORY_MB", "190").output().ok();
        assert_eq!((&*ran.stderr, problems(&ran)), ("", vec![]), "{what}, {capture}, {mode}");
        ran.stdout
    };
    for mode in ["ordered", "strict", "relaxed"] {
        for capture in ["0", "1", "2"] {
            assert_eq!(run("works", capture, mode), "answer 0, 0 refused\n");
            assert_eq!(run("ends", capture, mode), "answer 0, 0 refused\n");
        }
        // The callback takes the memory. In a relaxed capture, a part of the cache serves at last:
        // the program sees no error, and none is counted.
        for (capture, said) in [("0", "2, 1"), ("1", "2, 1"), ("2", "0, 0")] {
            assert_eq!(run("takes", capture, mode), format!("answer {said} refused\n"));
        }
    }
}

/// The event for which a block waits is not reused while a callback runs.
#[test]
fn block_keeps_its_event_during_callbacks() {
    let run = || Run::c("arrived.c").conf("expandable_segments:true,log:quiet");
    let ran = run().output().ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("done\n", ""));
    let broken = run().env("CACHEALLOC_BREAK", Rule::ArrivedKeepsEvent.name()).output();
    assert!(broken.stderr.contains("a reference too many"), "{broken:#?}");
}

/// Memory that was unmapped for a request belongs to the device while its callback runs. Another
/// thread's request may get it; the first one then fails.
#[test]
fn unmapped_memory_is_available_during_callbacks() {
    let conf = "expandable_segments:true,log:quiet";
    let ran = hooked("unmapped").conf(conf).env("SIM_MEMORY_MB", "100").output().ok();
    assert_eq!(ran.stdout, "2\ncreated 0, at once\n");
}

#[test]
fn hooks_come_and_go_inside_callbacks() {
    hears(
        "changes",
        "B free_pre 0 1024 #1 #2
        B free_post 0 1024 #1 #2",
    );
}

/// Hooks belong to one thread, and end with it.
#[test]
fn hooks_see_only_their_thread() {
    hears(
        "threads",
        "A malloc_pre 0 1000 1024
        A alloc_pre 0 2097152
        A alloc_post 0 2097152 there
        A malloc_post 0 1000 1024 #1 #2",
    );
}

#[test]
fn wrong_tables_are_refused() {
    hears("limits", "done");
}

/// CUDA fails in the child, as without the library; no hook is called.
#[test]
fn a_forked_child_has_no_hooks() {
    hears("child", "child 3");
}

/// The program destroys its own context in a callback of an allocation, which returns the driver's
/// code for that.
#[test]
fn a_context_may_end_inside_a_callback() {
    hears("context_ends", "answer 709");
}

/// A callback must not end its thread: the hook is removed, and the thread continues.
#[test]
fn a_callback_cannot_end_its_thread() {
    let ran = hooked("broken exit").output().ok();
    assert_eq!(ran.stdout, "served\nthread 7\n");
    let said = "cachealloc: the memory hook \"broken\" called pthread_exit, which is not allowed there in alloc_preprocess: removed the hook";
    assert_eq!(ran.said(), [said]);
}

/// A cancelled thread ends after the call, as it would without hooks.
#[test]
fn a_thread_is_cancelled_after_the_callback() {
    hears(
        "broken cancel",
        "goes on
        served
        thread -1",
    );
}

/// A program that jumps out of a callback has no hooks in this thread any more, and can still
/// allocate.
#[test]
fn longjmp_out_of_a_callback_is_safe() {
    hears(
        "broken jump",
        "served
        thread 7",
    );
}

fn plugin(name: &str, flags: &[&str]) -> PathBuf {
    compile_library("memory_hook_plugin.cpp", &format!("{name}/plugin.so"), flags)
}

fn with_plugin(path: &std::path::Path) -> Run {
    hooked("plain").conf(&format!("hook:{}", path.display()))
}

const CALLBACKS: [&str; 6] = [
    "alloc_preprocess",
    "alloc_postprocess",
    "malloc_preprocess",
    "malloc_postprocess",
    "free_preprocess",
    "free_postprocess",
];

#[test]
fn plugin_sees_all_threads() {
    let ran = with_plugin(&plugin("hook", &[])).output().ok();
    assert_eq!(ran.stdout, "done\nheard 2 2 2 2 2 2, 0 exceptions in flight\n");
    assert_eq!(ran.stderr, "");
}

/// A C++ exception that leaves a callback is caught there, as by `catch (...)`, and the hook is
/// called no more.
#[test]
fn a_hook_that_throws_is_removed() {
    let plugin = plugin("hook", &[]);
    // Number of calls of each callback before one of them threw.
    let heard =
        ["1 0 1 0 0 0", "1 1 1 0 0 0", "0 0 1 0 0 0", "1 1 1 1 0 0", "1 1 1 1 1 0", "1 1 1 1 1 1"];
    for (callback, heard) in CALLBACKS.iter().zip(heard) {
        let ran = with_plugin(&plugin).env("HOOK_THROWS", callback).output().ok();
        assert_eq!(ran.stdout, format!("done\nheard {heard}, 0 exceptions in flight\n"));
        let said = format!(
            "cachealloc: the memory hook \"counts\" threw an exception in {callback}: removed the hook"
        );
        assert_eq!(ran.said(), [said.as_str()]);
    }
}

/// One line reports it, and the program runs without the plugin.
#[test]
fn a_bad_plugin_is_reported() {
    let says = |ran: Ran, what: &str| {
        assert_eq!(ran.stdout, "done\n");
        assert!(ran.said().len() == 1 && ran.stderr.contains(what), "{what}: {}", ran.stderr);
    };
    says(with_plugin("/nowhere/plugin.so".as_ref()).output().ok(), "cannot be loaded (");
    says(with_plugin("plugin.so".as_ref()).output().ok(), "an absolute path");
    let driver = driver_folder().join("libcuda.so.1");
    says(with_plugin(&driver).output().ok(), "exports no cachealloc_hook_table");
    let other = plugin("hook-of-another-version", &["-DFROM_ANOTHER_VERSION"]);
    let ran = with_plugin(&other).output().ok();
    assert!(ran.stderr.contains("has an unknown version"), "{}", ran.stderr);
    assert!(ran.stdout.contains("heard 0 0 0 0 0 0"), "{}", ran.stdout);
}

/// No plugin is loaded into a process that makes no CUDA call.
#[test]
fn plugin_is_not_loaded_without_cuda() {
    let conf = format!("hook:{}", plugin("hook", &[]).display());
    let ran = Run::program("true").conf(&conf).output().ok();
    assert_eq!((&*ran.stdout, &*ran.stderr), ("", ""));
}

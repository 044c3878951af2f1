//! Unusual but legal uses of a process: the program behaves as without the library.
//! `docs/transparency.md` lists what else must not be noticed, and which test covers it.

use std::path::PathBuf;

use cachealloc_tests::{Run, compile_library, driver_folder, lacks, library, root, tier};

use crate::ordering::hazards::problems;
use crate::record::snapshots::Place;

fn way(name: &str) -> Run {
    Run::c("transparency.c").arg(name)
}

fn plugin() -> PathBuf {
    compile_library("transparency_plugin.c", "plugins/libtransparency.so", &["-ldl"])
}

fn linked_plugin() -> PathBuf {
    let driver = driver_folder().join("libcuda.so.1").display().to_string();
    let flags = ["-DLINKED", "-Wl,--no-as-needed", driver.as_str(), "-ldl"];
    compile_library("transparency_plugin.c", "plugins/libtransparency_linked.so", &flags)
}

const SETTINGS: [&str; 4] =
    ["free_mode:ordered", "free_mode:strict", "free_mode:relaxed", "record:all,log:quiet"];

/// Checks for the same output and exit code with and without the library under each setting. The
/// simulation must find nothing wrong, and only snapshots may be left behind.
#[track_caller]
fn same(run: &Run) {
    let native = run.clone().native().output().ok();
    for settings in SETTINGS {
        let place = Place::new();
        let ours = place.run(&run.clone().conf(settings)).ok();
        assert_eq!(native.stdout, ours.stdout, "{settings}: {ours:#?}");
        assert_eq!(problems(&ours), Vec::<&str>::new(), "{settings}");
        assert!(!ours.stderr.contains("caching is off"), "{settings}: {}", ours.stderr);
        place.sound(0..=20, &[]);
    }
}

#[test]
fn threads_are_cancelled_between_allocations() {
    same(&way("cancel").env("SIM_MEMORY_MB", "64"));
}

#[test]
fn threads_end_after_their_frees() {
    // On the plain driver, memory freed on a stream is available after a synchronization: 30 blocks
    // fit at once.
    same(&way("pending").env("SIM_MEMORY_MB", "224"));
}

#[test]
fn memory_of_a_plugin_outlives_it() {
    same(&way("outlives").arg(plugin()));
}

/// A constructor allocates while the loader's lock is held, and its stack is walked.
#[test]
fn libraries_come_and_go_while_all_allocate() {
    same(&way("storm").arg(plugin()));
}

#[test]
fn children_that_inherit_the_variable_do_the_same() {
    let ran = way("children").output().ok();
    assert_eq!(ran.stdout, "from a shell: inner\nallocations by libcachealloc.so\n");
    assert_eq!(ran.stderr, "");
}

#[test]
fn linked_functions_resolve_to_the_library_however_bound() {
    for now in ["", "1"] {
        let run = way("linked").arg(linked_plugin()).env("LD_BIND_NOW", now);
        let ran = run.output().ok();
        assert_eq!(ran.stdout, "linked functions are in libcachealloc.so\n");
        assert!(ran.report.calls("cuMemAlloc_v2") <= 16, "{:#?}", ran.report);
    }
}

/// With `RTLD_DEEPBIND` a plugin prefers the functions of its own libraries, including the
/// driver's, so its calls bypass the library. The program may free what the plugin allocates. The
/// driver refuses the plugin's free of a block that the program has allocated inside a segment.
/// `deep.rs` covers the work that such a plugin submits.
#[test]
fn a_plugin_that_binds_deep_is_left_to_the_driver() {
    for plugin in [plugin(), linked_plugin()] {
        let run = way("deep").arg(plugin);
        let native = run.clone().native().output().ok();
        assert_eq!(native.stdout, "in libcuda.so.1, our block freed by it: 0\n");
        let ours = run.output().ok();
        assert_eq!(ours.stdout, "in libcuda.so.1, our block freed by it: 1\n");
        assert_eq!(problems(&ours), Vec::<&str>::new());
    }
}

#[test]
fn the_last_release_ends_a_context_with_memory_in_it() {
    same(&way("release").env("SIM_MEMORY_MB", "64"));
}

/// The first library in the list gets the call first, and passes it on.
#[test]
fn another_preloaded_library_gets_its_calls_too() {
    let other = compile_library("other_preload.c", "libother_preload.so", &["-DCUDA", "-ldl"]);
    for (list, seen) in [([other.clone(), library()], 100), ([library(), other.clone()], 100)] {
        let run = way("linked").arg(linked_plugin()).preload(&list);
        let ran = run.output().ok();
        assert_eq!(ran.stderr.matches("malloc seen").count(), 1, "{list:?}: {ran:#?}");
        assert!(ran.stderr.contains(&format!("cuMemAlloc {seen}\n")), "{list:?}: {ran:#?}");
        assert!(ran.report.calls("cuMemAlloc_v2") <= 16, "{list:?}: {:#?}", ran.report);
        for conf in SETTINGS {
            let place = Place::new();
            place.run(&way("storm").arg(plugin()).preload(&list).conf(conf)).ok();
        }
    }
}

/// Workers that start CUDA themselves, and workers forked from a parent that had started it.
#[test]
fn python_workers_do_the_same() {
    let script = root().join("tests/programs/forks.py");
    let python =
        |way: &str, method: &str| Run::program("python3").arg(script.clone()).arg(way).arg(method);
    if lacks("python3") {
        return;
    }
    for way in ["before", "after"] {
        for method in tier::count(&["fork"][..], &["fork", "spawn", "forkserver"]) {
            same(&python(way, method));
        }
    }
}

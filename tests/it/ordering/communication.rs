//! Programs that use a communication library: its own memory costs them nothing, and hides nothing
//! from them (docs/ordering.md 3). A stand-in makes the same calls as the library.

use cachealloc_tests::{Ran, Run, compile_library};

const LIBRARY: &str = "beside/libnccl.so.2";
/// The same library under another name: any program could make these calls.
const ANOTHER: &str = "beside/libanother.so";
const PROGRAMS: [&str; 6] = ["quiet", "behind", "recycled", "registered", "symmetrical", "own"];

fn run(library: &str, program: &str) -> Run {
    let library = compile_library("communication_plugin.c", library, &["-ldl"]);
    let run = Run::c("communication.c").arg(library).arg(program);
    run.env("SIM_DEADLOCK_MS", "20000").conf("stats_on_exit:stderr,log:info")
}

fn waits(ran: &Ran) -> bool {
    ran.stderr.contains("waits, ")
}

#[test]
fn every_program_behaves_as_without_the_library() {
    for (library, program) in [LIBRARY, ANOTHER].iter().flat_map(|l| PROGRAMS.map(|p| (l, p))) {
        let natively = run(library, program).native().output().ok();
        for mode in ["ordered", "strict"] {
            let ours = run(library, program).conf(&format!("free_mode:{mode}")).output().ok();
            assert_eq!(natively.stdout, ours.stdout, "{library}, {mode}");
        }
    }
}

#[test]
fn frees_do_not_wait_for_kernels_of_the_library_itself() {
    let ran = run(LIBRARY, "quiet").output().ok();
    assert!(!waits(&ran) && !ran.stderr.contains(" seen: "), "{}", ran.stderr);
    let ran = run(ANOTHER, "quiet").output().ok();
    assert!(waits(&ran) && ran.stderr.contains("Ipc seen"), "{}", ran.stderr);
}

/// A tool that launches on behalf of the library hides nothing either.
#[test]
fn traced_kernels_still_belong_to_the_library() {
    let tool = compile_library("communication_tool.c", "beside/libtool.so", &["-ldl"]);
    let ran = run(LIBRARY, "recycled").env("TOOL", tool.display().to_string()).output().ok();
    assert!(ran.report.races() == 0, "{ran:#?}");
}

#[test]
fn each_rule_is_needed() {
    for (rule, program) in [
        ("communication_is_visible", "behind"),
        ("registered_memory_is_shared", "registered"),
        ("symmetric_memory_is_shared", "symmetrical"),
        ("only_libraries_are_exempt", "own"),
        ("barrier_on_free", "recycled"),
    ] {
        let ran = run(LIBRARY, program).env("CACHEALLOC_BREAK", rule).output();
        let races = ran.report.races();
        assert!(ran.code != Some(0) || races > 0, "{rule} is not caught by {program}: {ran:#?}");
    }
}

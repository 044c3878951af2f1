//! Programs that use a framework whose kernels receive the address of pinned memory
//! (`ordering/kernels.rs`, Note [Tables]). A stand-in plays the framework.

use cachealloc_tests::{Ran, Run, compile_library};

const LIBRARY: &str = "beside/libtorch_cuda.so";
/// The same framework under another name: its kernels may do anything with an address.
const ANOTHER: &str = "beside/libextension.so";

fn run(library: &str, program: &str) -> Run {
    let library = compile_library("framework_plugin.c", library, &["-ldl"]);
    Run::c("framework.c").arg(library).arg(program).conf("stats_on_exit:stderr")
}

/// Number of frees that waited because of host-visible memory.
fn waits(ran: &Ran) -> u64 {
    let line = ran.stderr.lines().find(|line| line.contains("work visible to the host"));
    let count = line.and_then(|line| line.split("to the host").nth(1)?.split_whitespace().next());
    count.map_or(0, |count| count.replace(',', "").parse().expect("a number"))
}

fn is_right(ran: &Ran) -> bool {
    ran.code == Some(0) && ran.report.races() == 0
}

#[test]
fn an_address_in_a_table_is_waited_for_once() {
    let ran = run(LIBRARY, "once").output().ok();
    assert!(waits(&ran) == 1 && !ran.stderr.contains("causes"), "{}", ran.stderr);
    let ran = run(ANOTHER, "once").output().ok();
    assert!(waits(&ran) > 20 && ran.stderr.contains("causes"), "{}", ran.stderr);
}

/// Without the library each program does the same; without its rule it does not.
#[test]
fn arguments_that_may_be_kept_are_waited_for() {
    for (library, program, rule) in [
        (LIBRARY, "once", "arguments_are_scanned"),
        (LIBRARY, "kept", "only_tables_are_passed"),
        (ANOTHER, "kept_out_of_a_table", "only_frameworks_pass_tables"),
    ] {
        let natively = run(library, program).native().output();
        assert!(is_right(&natively), "{natively:#?}");
        let ours = run(library, program).output();
        assert!(is_right(&ours), "{program}: {ours:#?}");
        let broken = run(library, program).env("CACHEALLOC_BREAK", rule).output();
        assert!(!is_right(&broken), "{rule} is not caught by {program}: {broken:#?}");
    }
}

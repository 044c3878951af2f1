//! Memory that the library keeps for each launched kernel.

use cachealloc_tests::Run;

/// The simulated driver takes some memory as well; one record per round would take a mebibyte.
const KIB_MAX: i64 = 600;

#[test]
fn kernels_that_are_looked_up_again_take_no_memory() {
    let kernels = include_str!("../../programs/kernels.ptx");
    let ran = Run::c("kernels_again.c").arg(kernels).output().ok();
    let grown_kib: i64 = ran.stdout.trim().trim_end_matches(" KiB").parse().expect(&ran.stdout);
    assert!(grown_kib < KIB_MAX, "it has grown by {grown_kib} KiB");
}

//! The full matrix of earlier and later work (docs/ordering.md 2) on the simulated driver; on a
//! GPU `tests/gpu/cuda/barrier_matrix.cu` has more kinds of work.

use cachealloc_tests::{Ran, Run};

fn matrix() -> Run {
    Run::program(env!("CARGO_BIN_EXE_matrix"))
}

fn holds(ran: Ran) {
    let ran = ran.ok();
    assert!(ran.stdout.contains("168 cells, 0 failed"), "{}", ran.stdout);
    assert!(ran.stdout.contains("matrix: 0 races"), "{}", ran.stdout);
}

#[test]
fn natively() {
    holds(matrix().native().output());
}

#[test]
fn in_every_mode() {
    for mode in ["strict", "ordered", "relaxed"] {
        holds(matrix().conf(&format!("free_mode:{mode}")).output());
    }
}

/// Without the barrier every cell whose earlier work is late is a race.
#[test]
fn without_the_barrier_it_fails() {
    let ran =
        matrix().conf("free_mode:ordered").env("CACHEALLOC_BREAK", "barrier_on_free").output();
    assert!(!ran.stdout.contains("matrix: 0 races"), "{}", ran.stdout);
}

//! Nanoseconds per frame, in every interpreter found.
//!
//! `cargo test --release -p cachealloc-python --test bench -- --ignored --nocapture` (after a run
//! without a filter, which builds the library that is loaded).

mod common;

#[test]
#[ignore = "a measurement"]
fn nanoseconds_a_frame() {
    for (version, printed) in common::run("bench.py") {
        println!("{version}\n{}", printed.trim_end_matches("done\n"));
    }
}

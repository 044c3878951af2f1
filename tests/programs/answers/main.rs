//! Queries about memory, and calls that fail: `answers SEED`.
//!
//! All output is the same on every driver, and under every library that keeps its promises: codes,
//! the state of the outputs, addresses relative to their block. `tests/gpu/cuda/answers.cu` makes
//! some of these queries in a program that also uses the CUDA runtime.

#[macro_use]
mod tools;

mod attributes;
mod blocks;
mod calls;

use cachealloc_tests::driver::{Driver, Lookup, Outcome};

fn main() {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| {
        eprintln!("answers: {error}");
        std::process::exit(2);
    });
    if let Err(code) = all(&driver, seed) {
        println!("FAIL, driver error {code}");
        std::process::exit(1);
    }
}

fn all(d: &Driver, seed: u64) -> Outcome {
    calls::sizes(d)?;
    calls::frees(d)?;
    calls::frees_of_stream_ordered(d)?;
    calls::info(d)?;
    attributes::of_every_kind(d)?;
    attributes::sync_memops(d)?;
    attributes::buffer_ids(d)?;
    attributes::mappings(d)?;
    attributes::handles(d)?;
    blocks::random(d, seed)?;
    calls::without_context(d)
}

//! Runs both kinds of programs. The default numbers suit a debug build; for more, in a release
//! build: `EXPLORE_STEPS=7` (minutes), `RANDOM_PROGRAMS=100000`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::explore::Explorer;
use crate::programs;

const STEPS_COUNT_DEFAULT: u64 = 5;
const PROGRAMS_COUNT_DEFAULT: u64 = 500;

#[test]
fn every_program_up_to_a_length() {
    let steps = number("EXPLORE_STEPS", STEPS_COUNT_DEFAULT);
    let begin = Instant::now();
    let mut trail = Vec::new();
    let explored = || -> u64 {
        let explorers = Explorer::each(true);
        explorers.iter().map(|explorer| explorer.all(steps as usize, &mut trail)).sum()
    };
    match catch_unwind(AssertUnwindSafe(explored)) {
        Ok(programs) => println!("{programs} programs up to {steps} steps: {:?}", begin.elapsed()),
        Err(_) => panic!("after {trail:#?}"),
    }
}

#[test]
fn random_programs() {
    for seed in 0..number("RANDOM_PROGRAMS", PROGRAMS_COUNT_DEFAULT) {
        let outcome = catch_unwind(|| programs::run(seed, true));
        assert!(outcome.is_ok(), "the program of seed {seed}");
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

//! Runs both kinds of programs; more of them with `EXPLORE_STEPS=7` (minutes),
//! `RANDOM_PROGRAMS=100000`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::explore::Explorer;
use crate::{programs, tier};

#[test]
fn every_program_up_to_a_length() {
    let steps = number("EXPLORE_STEPS", tier::count(4, 5));
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
    for seed in 0..number("RANDOM_PROGRAMS", tier::count(100, 500)) {
        let outcome = catch_unwind(|| programs::run(seed, true));
        assert!(outcome.is_ok(), "the program of seed {seed}");
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

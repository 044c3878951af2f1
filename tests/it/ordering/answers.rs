//! Queries about memory, and calls that fail, return the same as without the library: every
//! attribute of every kind of pointer, ranges, sizes, invalid frees, free memory.

use cachealloc_tests::{Ran, Run};

use crate::ordering::hazards::problems;
use crate::record::snapshots::Place;

const SEEDS: u64 = 12;

#[test]
fn ordered() {
    check("free_mode:ordered");
}

#[test]
fn strict() {
    check("free_mode:strict");
}

#[test]
fn relaxed() {
    check("free_mode:relaxed");
}

#[test]
fn recorded() {
    check("record:all,log:quiet");
}

fn check(conf: &str) {
    // Checks the snapshots of the configurations that record.
    let place = Place::new();
    for seed in 1..=SEEDS {
        let run = Run::program(env!("CARGO_BIN_EXE_answers")).arg(seed.to_string());
        let natively = clean(run.clone().native().output());
        let ours = clean(place.run(&run.conf(conf)));
        let lines = natively.stdout.lines().zip(ours.stdout.lines());
        let differing: Vec<_> = lines.filter(|(native, ours)| native != ours).collect();
        assert!(natively.stdout.lines().count() > 500, "too few queries");
        assert_eq!(differing, [], "without the library, and with {conf}, seed {seed}");
        assert_eq!(natively.stdout.len(), ours.stdout.len());
        assert!(!ours.stderr.contains("caching is off"), "{}", ours.stderr);
    }
}

fn clean(ran: Ran) -> Ran {
    let ran = ran.ok();
    let problems = problems(&ran);
    assert!(problems.is_empty() && !ran.stdout.contains("FAIL"), "{problems:?}\n{}", ran.stdout);
    ran
}

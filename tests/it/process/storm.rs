//! Many processes and signals at once, on a machine with too few processors: every signal is
//! handled, and every file is complete. `make test-long` runs these tests alone, because their load
//! would disturb other tests. They print the number of handled signals: `cargo test ... storm --
//! --nocapture`. `STORM_ROUNDS=10` repeats everything ten times from different seeds.

use std::fs;

use cachealloc_tests::{Run, has_unnamed_files};

use crate::command::cachealloc;
use crate::process::ends::same;
use crate::record::snapshots::Place;
use crate::record::statistics::page_of;

/// Additional processes that only use the processor.
const LOAD: u32 = 10;

fn storm(way: &str, processes: u32, signals: u32) -> Run {
    let round = Run::c("storm.c").arg(way).args(&format!("{processes} {signals} {LOAD}"));
    round.conf("record:all,max_entries:20000,log:quiet").within(300)
}

fn rounds() -> u32 {
    let rounds = std::env::var("STORM_ROUNDS").ok();
    rounds.map_or(1, |rounds| rounds.parse().expect("STORM_ROUNDS is a number"))
}

#[test]
#[ignore = "long tier"]
fn two_hundred_processes_end_at_once() {
    for _ in 0..rounds() {
        let place = Place::new();
        let run = Run::c("ends.c").args("many 200 exit").conf("record:all,log:quiet").within(300);
        let ran = place.run(&run).ok();
        let there = place.names().len();
        println!("200 processes ended at once: {there} snapshots");
        assert_eq!(ran.stdout, "codes 0\n", "{ran:#?}");
        place.sound(200..=200, &[]);
    }
}

/// Each process needs 0.1 s of a processor, and there may be two.
#[test]
#[ignore = "long tier"]
fn a_hundred_processes_end_at_once() {
    for way in ["many 100 exit", "many 60 TERM"] {
        let place = Place::new();
        same(&place, way, "record:all,log:quiet");
        let count = if way.contains("100") { 100 } else { 60 };
        place.sound(count..=count, &[]);
    }
}

/// Each handler of the program runs for each signal, while requested snapshots are written.
#[test]
#[ignore = "long tier"]
fn every_signal_arrives() {
    for round in 0..rounds() {
        let place = Place::new();
        let run = storm("handled", 20, 800).env("STORM_SEED", round.to_string());
        let ran = place.run(&run).ok();
        print!("{}", ran.stdout);
        let numbers: Vec<u32> =
            ran.stdout.split([' ', ',', '\n']).filter_map(|word| word.parse().ok()).collect();
        let [usr1, usr1_sent, term, term_sent, exited, processes] = numbers[..] else {
            panic!("{ran:#?}")
        };
        assert_eq!((usr1, term, exited), (usr1_sent, term_sent, processes), "{ran:#?}");
        assert_eq!(usr1_sent + term_sent, 800);
        println!(
            "{usr1} snapshots asked for: {} written, with 20 at the ends",
            place.names().len()
        );
        // One snapshot serves all requests made before it was begun, and each process leaves one at
        // its end.
        place.sound(40..=820, &[]);
    }
}

/// Processes end by a deadly signal at any moment, also while a snapshot is written, and by a
/// second one.
#[test]
#[ignore = "long tier"]
fn terminated_processes_leave_complete_files() {
    for round in 0..rounds() {
        let place = Place::new();
        let run = storm("TERM", 30, 100).env("STORM_SEED", round.to_string());
        let ran = place.run(&run).ok();
        assert!(ran.stdout.starts_with("ended 30 of 30:"), "{ran:#?}");
        println!("30 processes ended by SIGTERM: {} snapshots", place.names().len());
        place.sound(30..=160, &[]);
    }
}

/// No file is incomplete. Only what SIGKILL always leaves remains: a page that the user's next
/// process removes, and a hidden file that was being written where files need a name, or that was
/// just getting its own.
#[test]
#[ignore = "long tier"]
fn killed_processes_leave_no_partial_file() {
    for round in 0..rounds() {
        let place = Place::new();
        let run = storm("KILL", 30, 100).env("STORM_SEED", round.to_string());
        let ran = place.run(&run).ok();
        let (said, killed) = ran.stdout.split_once(':').expect("it says which");
        assert_eq!(said, "ended 30 of 30", "{ran:#?}");
        let names = place.names();
        let is_part = |name: &&String| name.starts_with('.') && name.ends_with(".part");
        let parts: Vec<_> = names.iter().filter(is_part).collect();
        let parts_max = if has_unnamed_files(&place.path) { 1 } else { 30 };
        assert!(parts.len() <= parts_max, "{parts:?}");
        println!(
            "30 processes killed: {} snapshots, {} hidden files that were being written",
            names.len() - parts.len(),
            parts.len()
        );
        parts.iter().for_each(|part| fs::remove_file(place.path.join(part)).expect("its folder"));
        place.sound(0..=130, &[]);
        cachealloc("top").output().ok();
        for process in killed.split_whitespace() {
            let page = page_of(process.parse().expect("a number"));
            assert!(!page.exists(), "{}", page.display());
        }
    }
}

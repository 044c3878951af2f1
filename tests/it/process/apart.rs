//! The library's threads share nothing that the program could notice: no descriptors, no record
//! locks, no priority.

use cachealloc_tests::{Run, tier};

use crate::record::snapshots::Place;

fn apart(way: &str) -> Run {
    let run = way.split(' ').fold(Run::c("apart.c"), |run, word| run.arg(word));
    run.conf("record:all,snapshot:s.pickle,log:quiet")
}

#[track_caller]
fn says(way: &str, wanted: &str) {
    let place = Place::new();
    let ran = place.run(&apart(way)).ok();
    assert_eq!(ran.stdout, format!("{wanted}\n"), "{way}");
}

#[test]
fn the_programs_record_locks_stay() {
    says("locks", "locked");
}

#[test]
fn no_end_of_a_pipe_stays_open() {
    says("pipe", "read 0");
}

/// The program may close unknown descriptors even if the library's thread cannot have its own
/// descriptor table.
#[test]
fn program_may_close_unknown_descriptors() {
    says(&format!("closes {}", tier::count(2, 6)), "0 wrong");
    // Without its own table the thread compares before it writes. The file may still change between
    // the two, and most often while others have the processor.
    let ways = &format!("closes {} together", tier::count(2, 6));
    let said = || Place::new().run(&apart(ways)).ok().stdout;
    assert!((0..20).any(|_| said() == "0 wrong\n"));
}

#[test]
fn our_threads_are_scheduled_as_usual() {
    says("scheduled", "as usual");
}

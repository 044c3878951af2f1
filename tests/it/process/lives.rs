//! Living processes that look dead, or like another process, keep their files.

use std::io::{BufRead, BufReader};
use std::process::Child;

use cachealloc_tests::{Run, skipped};

use crate::command::cachealloc;
use crate::record::recover::{left_by, spawn};
use crate::record::snapshots::Place;

const NO_RIGHT: Option<i32> = Some(77);

fn lives(way: &str) -> Run {
    Run::c("lives.c").arg(way).conf("record:all,snapshot:s.pickle,log:quiet")
}

/// Returns the process's number once it has allocated, or `None` if it lacks the rights for its
/// case.
fn ready(child: &mut Child) -> Option<u32> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it reads");
    line.trim().strip_prefix("ready ")?.parse().ok()
}

/// Checks that the process is listed, answers, and keeps its history.
#[track_caller]
fn is_known_to_live(place: &Place, process: u32) {
    let stats = place.run(&cachealloc(&format!("stats {process}"))).ok();
    assert!(stats.stdout.contains(&format!("process {process}: ")), "{stats:#?}");
    assert!(stats.stdout.contains("lives"), "the command is named: {stats:#?}");
    let all = place.run(&cachealloc("top --json")).ok();
    assert!(all.stdout.contains("lives"), "{all:#?}");
    let removed = place.run(&cachealloc(&format!("recover {process} --remove")));
    assert!(removed.stderr.contains("still running"), "{removed:#?}");
}

#[test]
fn a_process_whose_main_thread_has_ended_lives() {
    let place = Place::new();
    let mut child = spawn(&place, &lives("leader"));
    let process = ready(&mut child).expect("it is ready");
    is_known_to_live(&place, process);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("a child").code(), Some(3));
    let snapshot = std::fs::read(place.path.join("s.pickle")).expect("the snapshot");
    assert!(String::from_utf8_lossy(&snapshot).contains("lives.c"), "its frames have names");
    assert_eq!(left_by(process).len(), 0);
}

#[test]
fn a_process_with_another_clock_lives() {
    let place = Place::new();
    let mut child = spawn(&place, &lives("elsewhere"));
    let Some(process) = ready(&mut child) else {
        assert_eq!(child.wait().expect("a child").code(), NO_RIGHT);
        return skipped("only root makes time namespaces");
    };
    is_known_to_live(&place, process);
    // The user's next program does not remove anything either.
    place.run(&lives("forked")).ok();
    is_known_to_live(&place, process);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("a child").code(), Some(3));
}

#[test]
fn the_first_process_of_two_namespaces_is_not_its_own_child() {
    let ran = Place::new().run(&lives("nested"));
    if ran.code == NO_RIGHT {
        return skipped("only root makes namespaces");
    }
    assert_eq!(ran.code, Some(3), "{ran:#?}");
}

#[test]
fn child_of_a_raw_fork_fails_as_without_the_library() {
    let place = Place::new();
    let native = place.run(&lives("cloned").native()).ok();
    assert_eq!(place.run(&lives("cloned")).ok().stdout, native.stdout);
}

#[test]
fn child_does_not_inherit_the_recording() {
    let place = Place::new();
    assert_eq!(place.run(&lives("forked")).ok().stdout, "0 of them mapped\n");
}

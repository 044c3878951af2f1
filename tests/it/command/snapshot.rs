//! `cachealloc snapshot` prints the name of the file once it is complete, or the reason if no file
//! comes.

use std::fs;

use cachealloc_tests::Run;

use super::cachealloc;
use super::live::failed;
use crate::record::snapshots::Place;
use crate::record::statistics::{Running, statistics};

fn busy(place: &Place, conf: &str) -> Running {
    let running = Running::new(statistics("busy 2 exit").conf(conf).folder(&place.path));
    running.wait_for_file();
    running
}

fn snapshot(running: &Running) -> Run {
    cachealloc(&format!("snapshot {}", running.child.id()))
}

#[test]
fn the_file_is_named_and_whole() {
    for conf in ["", "signal:USR2", "record:all,max_entries:1000,signal:WINCH"] {
        let place = Place::new();
        let running = busy(&place, &format!("snapshot:s-%n.pickle,{conf}"));
        let path = fs::canonicalize(&place.path).expect("the folder");
        for number in 0..3 {
            // The name is absolute, as this call from another folder shows.
            let ran = snapshot(&running).folder("/").output().ok();
            assert_eq!(ran.stdout, format!("{}/s-{number}.pickle\n", path.display()), "{conf}");
            assert_eq!(ran.stderr, "");
            let size = fs::metadata(ran.stdout.trim_end()).expect("the file").len();
            assert!(size > 100, "{size}");
        }
        assert_eq!(running.end(), Some(0));
        place.sound(3..=4, &[]); // plus one at the end, if anything is recorded
    }
}

#[test]
fn missing_snapshot_is_explained() {
    let place = Place::new();
    let running = busy(&place, "snapshot:/no/such/folder/s.pickle");
    let ran = snapshot(&running).output();
    let begin =
        format!("cachealloc: process {} could not write the snapshot: ", running.child.id());
    let end = "; choose another file with its option snapshot\n";
    assert!(ran.stderr.starts_with(&begin) && ran.stderr.ends_with(end), "{ran:?}");
    assert_eq!(running.end(), Some(0));
    let running = busy(&place, "signal:off,record:state,snapshot:s");
    let why = "start it without that option, or call cachealloc_snapshot in the program";
    let id = running.child.id();
    failed(&snapshot(&running).output(), &format!("process {id} runs with signal:off; {why}"));
    assert_eq!(running.end(), Some(0));
}

/// A signal that does not ask for a snapshot would end the program or have no effect.
#[test]
fn a_signal_is_sent_only_where_it_is_wanted() {
    let place = Place::new();
    let program = statistics("").plain_command().get_program().to_owned();
    let start = |words: &str| {
        let run = Run::program("env").args(words).arg(&program).args("busy 2 exit");
        let running = Running::new(run.folder(&place.path));
        running.wait_for_file();
        running
    };
    for (words, wanted) in [("--ignore-signal=USR1", "ignores"), ("--block-signal=USR1", "blocks")]
    {
        let running = start(words);
        let id = running.child.id();
        let next = "start it with another signal: cachealloc run --signal USR2 -- ./app";
        let what = format!("process {id} {wanted} SIGUSR1, which requests snapshots; {next}");
        failed(&snapshot(&running).output(), &what);
        assert_eq!(running.end(), Some(0));
    }
    // A program may install a handler without the library seeing it, and is not ended for that.
    let running = Running::new(Run::c("raw_signal.c").folder(&place.path));
    running.wait_for_file();
    let ran = snapshot(&running).output();
    assert!(ran.stderr.contains("no longer handles SIGUSR1") && ran.code == Some(1), "{ran:?}");
    assert_eq!(running.end(), Some(0));
    assert_eq!(place.names(), [""; 0]);
}

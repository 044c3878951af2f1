//! When snapshots are written: at every end, on signals, under load. The program must not notice:
//! same output, same exit code, same view of its signals.

use std::process::Command;

use cachealloc_tests::{Ran, Run, lacks};

use crate::record::snapshots::{Place, trigger};

/// Runs the program without the library and with this option: the output and exit code must be the
/// same, and the number of snapshots within this range.
#[track_caller]
fn same(way: &str, conf: &str, count: std::ops::RangeInclusive<usize>) -> Ran {
    let place = Place::new();
    let native = place.run(&trigger(way).native());
    let ours = place.run(&trigger(way).conf(conf));
    let said = (&native.stdout, native.code);
    assert_eq!(said, (&ours.stdout, ours.code), "{way}, {conf}: {ours:#?}");
    place.sound(count, &[]);
    ours
}

#[test]
fn every_way_of_ending_leaves_one_snapshot() {
    for way in ["return", "exit", "_exit", "_Exit", "quick_exit", "abort"] {
        same(way, "record:all", 1..=1);
        same(way, "record:off", 0..=0);
        same(way, "record:all,signal:off", 1..=1);
    }
}

#[test]
fn every_signal_that_ends_the_process_leaves_one_snapshot() {
    for signal in [
        "TERM", "INT", "HUP", "QUIT", "ABRT", "PIPE", "ALRM", "USR2", "XCPU", "XFSZ", "VTALRM",
        "PROF", "IO", "PWR",
    ] {
        same(&format!("raise {signal}"), "record:all", 1..=1);
    }
    same("raise TERM", "record:off", 0..=0);
    same("raise USR1", "record:all,signal:off", 1..=1);
    same("raise SEGV", "record:all", 0..=0);
    same("raise KILL", "record:all", 0..=0);
}

#[test]
fn closed_stderr_is_harmless() {
    let place = Place::new();
    let ran = place.run(&trigger("raise TERM").conf("record:all").stderr_closed());
    assert_eq!(ran.code, Some(143), "{ran:#?}");
    place.sound(1..=1, &["--from-start"]);
}

#[test]
fn others_allocate_while_the_process_ends() {
    for way in ["exit_busy", "_exit_busy", "exit_twice"] {
        for _ in 0..2 {
            same(way, "record:all,max_entries:200", 1..=1);
        }
    }
    same("killed_busy TERM", "record:all,max_entries:200", 1..=1);
}

/// A handler may have interrupted anything: `malloc`, or a hook that holds a lock of the library.
/// The process ends as it does without the library. If the interrupted code holds a lock that the
/// writer needs, and the machine is busy as well, the process ends without the file rather than
/// later (seen once in many runs).
#[test]
fn a_handler_may_end_the_process_anywhere() {
    for us in [300, 800, 1700] {
        for way in ["exit_in_malloc", "exit_in_alloc"] {
            same(&format!("{way} {us}"), "record:all,max_entries:200", 0..=1);
        }
    }
}

/// If the interrupted thread holds a lock that the writer needs, that thread continues, and the
/// snapshot omits nothing.
#[test]
fn a_signal_in_an_allocation_loses_nothing() {
    for us in [300, 900, 1500, 2100, 2700, 3300] {
        let ran = same(&format!("killed_in_alloc {us} TERM"), "record:all,max_entries:200", 1..=1);
        assert!(!ran.stderr.contains("left out"), "{}", ran.stderr);
    }
}

#[test]
fn the_program_sees_its_own_handlers() {
    for signal in ["USR1", "TERM", "HUP", "USR2", "CHLD"] {
        same(&format!("handlers {signal}"), "record:all", 1..=9);
        // No snapshot is requested: the signal is the program's.
        let ran = same(&format!("handlers {signal}"), "record:off", 0..=0);
        assert_eq!(ran.stderr, "");
    }
    same("handlers USR1", "record:off,signal:USR1", 1..=9);
    same("handlers USR2", "record:off,signal:USR2", 1..=9);
}

/// Programs may end like this: their handler cleans up and sends the signal again.
#[test]
fn a_signal_sent_again_leaves_a_snapshot() {
    for way in ["resend TERM", "resend TERM before", "resend HUP", "once TERM", "once INT"] {
        same(way, "record:all", 1..=1);
    }
}

#[test]
fn ignored_and_blocked_signals_stay_so() {
    same("ignored HUP", "record:all", 1..=1);
    same("ignored USR1", "record:all", 1..=1);
    same("blocked USR1", "record:all", 1..=1);
    same("blocked TERM", "record:all", 1..=1);
}

#[test]
fn children_run_and_end_as_without_the_library() {
    for how in ["fork", "vfork", "exec", "spawn", "ignored", "ignored_later", "handler"] {
        for signal in ["USR1", "TERM"] {
            same(&format!("in_child {signal} {how}"), "record:all", 1..=1);
        }
    }
}

#[test]
fn library_does_nothing_without_cuda() {
    same("no_cuda", "record:all", 0..=0);
    let ran = same("no_cuda USR1", "record:all", 0..=0);
    assert_eq!((ran.code, &*ran.stderr), (Some(138), ""));
}

#[test]
fn the_library_may_be_off() {
    let place = Place::new();
    let ran = place.run(&trigger("raise USR1").conf("record:all").env("CACHEALLOC", "0"));
    assert_eq!(ran.code, Some(138), "{ran:#?}");
    place.sound(0..=0, &[]);
}

/// A thousand signals, while four threads allocate: no deadlock, and every file is complete.
#[test]
fn storms_of_signals() {
    for conf in ["record:all,max_entries:200", "record:off"] {
        let place = Place::new();
        place.run(&trigger("storm USR1 1000").conf(conf)).ok();
        place.sound(1..=1000, &["--opcodes"]);
    }
    let place = Place::new();
    place.run(&trigger("storm_of_changes USR1").conf("record:all,log:quiet")).ok();
    place.sound(1..=3000, &[]);
}

/// The file requested directly before the end is complete, whether recording is on or not.
#[test]
fn a_snapshot_asked_for_is_finished() {
    if lacks("python3") {
        return;
    }
    for end in ["exit", "_exit"] {
        let place = Place::new();
        let ran = place.run(&trigger(&format!("signal_then {end}")).conf("record:off"));
        assert_eq!(ran.code, Some(3), "{ran:#?}");
        let said = place.sound(1..=1, &[]);
        assert!(said.contains("5005 blocks"), "{said}");
    }
}

/// The simplest use, without any option.
#[test]
fn usr1_works_without_options() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let ran = place.run(&Run::c("triggers.c").arg("raise").arg("USR1"));
    assert_eq!((ran.code, &*ran.stdout), (Some(3), "goes on\n"), "{ran:#?}");
    let said = place.sound(1..=1, &["--opcodes"]);
    assert!(said.contains("5 blocks, 0 entries"), "{said}");
}

/// A block alive at the end was never freed; a block alive at an earlier snapshot may be freed
/// later.
#[test]
fn a_snapshot_says_why_it_was_taken() {
    if lacks("python3") {
        return;
    }
    for (way, conf, wanted) in [
        ("return", "record:all", "exit"),
        ("_exit", "record:all", "exit"),
        ("raise TERM", "record:all", "signal"),
        ("raise USR1", "record:off", "asked"),
    ] {
        let place = Place::new();
        place.run(&trigger(way).conf(&format!("{conf},snapshot:a.pickle")));
        assert_eq!(taken(&place, "a.pickle"), wanted, "{way}");
    }
    let place = Place::new();
    let refused = Run::c("planted.c").arg("5").arg("refused");
    place.run(&refused.conf("record:all,snapshot:%n.pickle")).ok();
    assert_eq!(["0.pickle", "1.pickle"].map(|name| taken(&place, name)), ["shortage", "exit"]);
}

/// A request that fails waits for its snapshot, which here waits for a lock that the request's
/// thread holds. The thread continues when the writer has slept for a while, and the snapshot is
/// written when the lock is free.
#[test]
fn shortage_waits_for_a_bounded_time() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let native = place.run(&Run::c("short_in_loader.c").native()).ok();
    let ours = place.run(&Run::c("short_in_loader.c").conf("record:all,snapshot:%n.pickle")).ok();
    assert_eq!(ours.stdout, native.stdout);
    // If the program ends meanwhile, one file serves both purposes.
    place.sound(1..=2, &[]);
    let names = place.names();
    assert_eq!(taken(&place, names.last().expect("a snapshot")), "exit");
}

/// Returns the reason why this file was written, as Python reads it.
#[track_caller]
fn taken(place: &Place, name: &str) -> String {
    const READ: &str = "
import pickle, sys
settings = pickle.load(open(sys.argv[1], 'rb'))['allocator_settings']['cachealloc']
print(settings['taken'], end='')
";
    let read = Command::new("python3").args(["-c", READ, name]).current_dir(&place.path).output();
    let read = read.expect("python3 is installed: see .ci/run");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    String::from_utf8_lossy(&read.stdout).into_owned()
}

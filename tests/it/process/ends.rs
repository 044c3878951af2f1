//! A process ends as it does without the library, whatever the library still has to write: with the
//! same exit code or signal, no code that runs on, and no crash for lack of memory. The promised
//! snapshot is written, or one line gives the reason.

use std::fs;
use std::path::Path;

use cachealloc_tests::{Ran, Run, command, compile_library, lacks, library, tier};

use crate::record::snapshots::Place;

/// The exit code of a run that was killed because it did not end.
const HUNG: i32 = 137;

fn ends(way: &str) -> Run {
    way.split(' ').fold(Run::c("ends.c"), |run, word| run.arg(word))
}

/// Checks that the program has the same output and exit code without the library and with this
/// option.
#[track_caller]
pub fn same(place: &Place, way: &str, conf: &str) -> Ran {
    let native = natively(place, way);
    let ours = place.run(&ends(way).conf(conf));
    let said = (&native.stdout, native.code);
    assert_eq!(said, (&ours.stdout, ours.code), "{way}, {conf}: {ours:#?}");
    ours
}

/// Runs without the library. Such a run that hangs is no answer: one in many thousands does if its
/// threads change the user without pause.
fn natively(place: &Place, way: &str) -> Ran {
    let mut runs = (0..3).map(|_| place.run(&ends(way).native()));
    runs.find(|ran| ran.code != Some(HUNG)).unwrap_or_else(|| panic!("{way} hangs natively"))
}

/// Names of 3,000 stacks take some 0.1 s, and much longer beside threads that want the processor.
#[test]
fn nothing_runs_after_a_deadly_signal() {
    for way in ["killed spin 20", "killed malloc 6", "killed deaf 6", "killed made 6"] {
        let place = Place::new();
        same(&place, way, "record:all");
        place.sound(1..=1, &[]);
    }
}

/// A stopped thread may hold what the writer needs: locks of the library, and the loader's.
#[test]
fn a_snapshot_is_whole_whatever_was_stopped() {
    for way in ["killed cuda 6", "killed loader 3", "killed held 1"].repeat(tier::count(1, 4)) {
        let place = Place::new();
        let ran = same(&place, way, "record:all");
        assert!(!ran.stderr.contains("skipped a context"), "{}", ran.stderr);
        place.sound(1..=1, &[]);
    }
}

/// The C library's own signals and the kernel's stops work until the process ends, and disturb no
/// thread.
#[test]
fn process_ends_regardless_of_its_threads() {
    for way in ["user 4", "cancel 4", "vfork 4", "timer 2"] {
        let place = Place::new();
        same(&place, &format!("killed {way}"), "record:all");
        place.sound(1..=1, &[]);
    }
}

/// The process ends by the first of two signals that come at once, whichever that is.
#[test]
fn two_signals_end_a_process_once() {
    for _ in 0..4 {
        let place = Place::new();
        let ran = place.run(&ends("killed twice 3").conf("record:all"));
        let ended = ["ended with 143\n", "ended with 130\n"];
        assert!(ran.code == Some(0) && ended.contains(&&*ran.stdout), "{ran:#?}");
        place.sound(1..=1, &[]);
    }
}

/// The snapshot of the exit is there, and no second one.
#[test]
fn a_signal_may_come_while_the_process_ends() {
    let place = Place::new();
    let ran = place.run(&ends("ending 25").conf("record:all,log:quiet"));
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "25\n"), "{ran:#?}");
    place.sound(25..=25, &[]);
}

#[test]
fn a_program_may_change_its_environment() {
    for _ in 0..3 {
        let place = Place::new();
        let ran = place.run(&ends("environment").conf("record:all,log:quiet"));
        assert_eq!((ran.code, &*ran.stdout), (Some(3), "lives\n"), "{ran:#?}");
        place.sound(2..=400, &[]);
    }
}

/// An exit handler that was registered before CUDA frees the memory.
#[test]
fn frees_during_process_end_take_effect() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    same(&place, "frees_at_exit", "record:all");
    let said = place.sound(1..=1, &["--from-start"]);
    assert!(said.contains("1 segments, 1 blocks, 13 entries"), "all are freed: {said}");
}

/// The new file has other functions at the same places: with a build id, without one, and with an
/// id that claims it is the same. A file next to the library is not its debug information.
#[test]
fn a_library_may_be_replaced_while_it_is_loaded() {
    let builds = [
        ("sha1", "-Wl,--build-id=sha1"),
        ("none", "-Wl,--build-id=none"),
        ("same", "-Wl,--build-id=0x0123456789abcdef"),
    ];
    for (id, flag) in builds {
        let build = |kind: &str, more: &[&str]| {
            let name = format!("replaced-{id}-{kind}/lib.so");
            compile_library("replaced_library.c", &name, &[&[flag], more].concat())
        };
        let (here, other) = (build("here", &[]), build("other", &["-DOTHER"]));
        for replaced in [false, true] {
            let place = Place::new();
            fs::copy(&here, place.path.join("lib.so")).expect("a copy");
            fs::copy(&other, place.path.join("other.so")).expect("a copy");
            let path = place.path.join("lib.so");
            make_fifo(&place.path.join("lib.so.dwp"));
            let with = if replaced { "other.so" } else { "-" };
            let run = Run::c("ends.c").arg("replaced").arg(&path).arg(with);
            let ran = place.run(&run.conf("record:all,snapshot:s.pickle"));
            assert_eq!(ran.code, Some(3), "{ran:#?}");
            let bytes = fs::read(place.path.join("s.pickle")).expect("the snapshot");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("other_allocate_here"), "{id}: a function that never ran");
            assert_eq!(text.contains("allocate_here"), !replaced, "{id}, replaced: {replaced}");
            assert!(!replaced || text.contains("lib.so"), "{id}: the library is named");
        }
    }
}

fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "{}", path.display());
}

/// Programs do this with libraries that they unpack. Here a FIFO has the name afterwards.
#[test]
fn a_fifo_may_have_the_name_of_a_library() {
    let library = compile_library("replaced_library.c", "replaced-fifo/lib.so", &[]);
    let place = Place::new();
    let path = place.path.join("lib.so");
    fs::copy(library, &path).expect("a copy");
    make_fifo(&place.path.join("fifo"));
    let run = Run::c("ends.c").arg("replaced").arg(&path).arg("fifo");
    let ran = place.run(&run.conf("record:all,snapshot:s.pickle"));
    assert_eq!((ran.code, ran.said().len()), (Some(3), 1), "{ran:#?}");
    assert!(place.path.join("s.pickle").exists(), "{ran:#?}");
}

/// The program checks what its `malloc` returns, and continues. Runs without a report of the
/// simulated driver, which itself allocates memory.
#[test]
fn host_memory_may_run_short() {
    for kib in ["100", "3000", "20000"] {
        for when in ["recording", "writing", "asked"] {
            let place = Place::new();
            let run = ends("short_of_memory").arg(when).arg(kib).conf("record:all");
            let ran = run.folder(&place.path).plain_command().output().expect("it starts");
            let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert_eq!(ran.status.code(), Some(3), "{when}, {kib}: {ran:?} {stderr}");
            assert!(ran.stdout.starts_with(b"lives\n"), "{when}, {kib}: {stderr}");
            assert!((1..=2).contains(&stderr.lines().count()), "{when}, {kib}: {stderr}");
            assert!(stderr.lines().all(|line| line.contains("memory")), "{when}, {kib}: {stderr}");
            place.sound(0..=0, &[]);
        }
    }
}

#[test]
fn usr1_does_not_end_the_process_before_the_first_context() {
    for conf in ["record:all", "record:off"] {
        let place = Place::new();
        let ran = place.run(&ends("early").conf(conf));
        assert_eq!((ran.code, &*ran.stdout), (Some(3), "lives\n"), "{ran:#?}");
        // One snapshot serves both if the end comes before the writer is done.
        place.sound(1..=if conf == "record:all" { 2 } else { 1 }, &[]);
    }
    let place = Place::new();
    let ran = place.run(&ends("never"));
    assert_eq!((ran.code, &*ran.stdout), (Some(3), "lives\n"), "{ran:#?}");
    assert_eq!(ran.said(), ["cachealloc: cannot write a snapshot: the program created no context"]);
}

#[test]
fn temporary_name_may_be_taken() {
    let place = Place::new();
    place.run(&ends("taken s.pickle").conf("record:all,snapshot:s.pickle"));
    assert!(place.names().contains(&"s.pickle".to_string()), "{:?}", place.names());
}

/// A file that the library writes never gets a descriptor number that the program has closed and
/// still writes to.
#[test]
fn library_files_avoid_closed_descriptors() {
    for _ in 0..3 {
        let place = Place::new();
        same(&place, "numbers", "record:all");
        place.sound(1..=1, &[]);
    }
}

/// If nothing was recorded, the library opens and removes no file in the program's threads, nor in
/// any thread if the filter applies to all of them.
#[test]
fn seccomp_filter_does_not_kill_the_process() {
    for threads in ["one", "all", "tight", "early"] {
        lives_behind_a_filter(&ends("sealed").arg(threads).conf("record:off"));
    }
}

/// The same holds if the filter comes while the library's thread opens a file, which takes 30 ms
/// here.
#[test]
fn seccomp_filter_waits_for_the_library_thread() {
    let slow = compile_library("slow_open.c", "libslow_open.so", &["-ldl"]);
    lives_behind_a_filter(&ends("sealed slow").preload(&[library(), slow]));
}

/// Runs without a report of the simulated driver, which opens a file at the end.
#[track_caller]
fn lives_behind_a_filter(run: &Run) {
    let place = Place::new();
    let ran = run.clone().folder(&place.path).plain_command().output().expect("it starts");
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(3), &b"sealed\n"[..]), "{ran:?}");
    place.sound(0..=0, &[]);
}

/// Another process may ask for statistics at any moment.
#[test]
fn filtered_process_gives_no_answer() {
    let (place, command) = (Place::new(), command().display().to_string());
    let run = |run: Run| place.run(&run.env("COMMAND", &command));
    let native = run(ends("sealed asked").native());
    let ours = run(ends("sealed asked"));
    assert_eq!((native.stdout, native.code), (ours.stdout, ours.code), "{}", ours.stderr);
}

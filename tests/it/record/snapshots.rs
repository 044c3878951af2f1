//! Snapshots of real programs: replaying a history from nothing gives the blocks in the file,
//! forwards and backwards (`scripts/check-snapshot.py`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cachealloc_tests::{Ran, Run, has_unnamed_files, lacks, root, scratch_file, skipped, tier};

use crate::ordering::hazards::hazards;
use crate::record::recover::spawn;

/// A folder for one program's snapshots, removed when the value is dropped.
pub struct Place {
    pub path: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let path = scratch_file("snapshots");
        fs::create_dir_all(&path).expect("target/ is writable");
        Place { path }
    }

    pub fn run(&self, run: &Run) -> Ran {
        run.clone().folder(&self.path).output()
    }

    /// Returns the names of all files there, hidden ones included.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).expect("the folder").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Fails unless the folder contains this many files, all sound, and nothing else. Returns the
    /// checker's output.
    #[track_caller]
    pub fn sound(&self, count: std::ops::RangeInclusive<usize>, options: &[&str]) -> String {
        let names = self.names();
        let odd = names.iter().find(|name| !name.ends_with(".pickle"));
        assert_eq!(odd, None, "only snapshots are left behind: {names:?}");
        assert!(count.contains(&names.len()), "{} snapshots, not {count:?}", names.len());
        if names.is_empty() || lacks("python3") {
            return String::new();
        }
        let checker = Command::new("python3")
            .arg(root().join("scripts/check-snapshot.py"))
            .args(options)
            .args(&names)
            .current_dir(&self.path)
            .output()
            .expect("python3 is installed: see .ci/run");
        let said = String::from_utf8_lossy(&checker.stdout).into_owned();
        assert!(checker.status.success(), "{said}");
        said
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path); // only disk space is lost
    }
}

/// `tests/c/record/triggers.c` with these arguments, separated by spaces.
pub fn trigger(way: &str) -> Run {
    way.split(' ').fold(Run::c("triggers.c"), |run, word| run.arg(word))
}

#[test]
fn every_hazard_leaves_a_sound_history() {
    let place = Place::new();
    // Each hazard runs in one mode, half of them in the default one.
    let modes = ["ordered", "strict", "ordered", "relaxed"];
    let mut runs_count = 0;
    for (index, hazard) in hazards().iter().enumerate().step_by(tier::count(14, 1)) {
        let mode = modes[index % modes.len()];
        let conf = format!("record:all,context:none,max_entries:5000,log:quiet,free_mode:{mode}");
        if hazard.is_for(Some(mode)) {
            place.run(&hazard.run().conf(&conf));
            runs_count += 1;
        }
    }
    // One at the end, unless the hazard ends at once, and some for lack of memory.
    let said = place.sound(tier::count(10, 80)..=2 * runs_count, &["--opcodes"]);
    let lost = said.lines().filter(|line| line.contains("not from the start"));
    for line in lost {
        assert!(line.contains(" 5000 entries"), "only a full history loses entries: {line}");
    }
}

/// Host memory that devices can access is in separate lists. A refused request leaves nothing
/// there.
#[test]
fn pinned_memory_is_shown() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    place.run(&Run::c("pinned.c").arg("ends").conf("record:all,log:quiet")).ok();
    place.sound(1..=1, &["--opcodes", "--from-start"]);
    shows_pinned_memory(&place);
}

/// Checks that the only snapshot of this place shows the memory of `tests/c/record/pinned.c`.
#[track_caller]
pub fn shows_pinned_memory(place: &Place) {
    let script = "
import pickle, sys, time
s = pickle.load(open(sys.argv[1], 'rb'))
print(sorted((g['total_size'] >> 10, g['blocks'][0].get('category', g['blocks'][0]['state'])) for g in s['host_segments']))
print([(e['action'], e['size'] >> 10) for e in s['host_traces'] if not e['action'].startswith('segment')])
print({e['frames'][-1]['name'] != '' for e in s['host_traces']})
print({0 <= time.time() - e['time_us'] / 1e6 < 600 for e in s['host_traces']})";
    let mut python = Command::new("python3");
    python.args(["-c", script]).args(place.names()).current_dir(&place.path);
    let python = python.output().expect("python3 runs");
    let mut said = String::from_utf8_lossy(&python.stdout).into_owned();
    said.retain(|c| c != '\'');
    // Memory that the program has freed is kept for its next request.
    let expected = "[(64, app), (1024, inactive), (2048, app), (4096, app)]\n\
        [(alloc, 1024), (alloc, 2048), (alloc, 64), (free_requested, 64), (free_completed, 64), \
        (alloc, 64), (free_requested, 1024), (free_completed, 1024), (alloc, 4096)]\n\
        {True}\n{True}\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&python.stderr));
}

#[test]
fn random_programs_leave_sound_histories() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    for seed in 1..=tier::count(6, 24u64) {
        let mode = ["ordered", "strict", "relaxed"][seed as usize % 3];
        let frees = if mode == "relaxed" { "own" } else { "full" };
        let bound = if seed % 2 == 0 { ",max_entries:50" } else { "" };
        let expandable = if seed % 5 < 2 { ",expandable_segments:true" } else { "" };
        let run = Run::program(env!("CARGO_BIN_EXE_random"))
            .arg(seed.to_string())
            .arg("200")
            .arg((1 + seed % 4).to_string())
            .arg(frees)
            .env("SIM_MEMORY_MB", if seed % 4 == 0 { "192" } else { "1024" })
            .conf(&format!("record:all,log:quiet,free_mode:{mode}{bound}{expandable}"));
        place.run(&run).ok();
    }
    let said = place.sound(tier::count(6, 24)..=60, &["--opcodes"]);
    assert!(
        said.matches(", from the start").count() >= tier::count(3, 12),
        "whole histories explain all: {said}"
    );
    assert!(said.contains("not from the start"), "some rings overflowed: {said}");
}

#[test]
fn a_free_that_waits_is_pending_in_the_snapshot() {
    let place = Place::new();
    place.run(&trigger("pending").conf("record:all,free_mode:relaxed")).ok();
    place.sound(2..=2, &["--from-start"]);
    let bytes = fs::read(place.path.join("pending.pickle")).expect("the snapshot");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("active_pending_free"), "no block waits");
}

#[test]
fn a_context_ends_with_memory_in_it() {
    let place = Place::new();
    place.run(&trigger("context_ends").conf("record:all")).ok();
    place.sound(5..=5, &["--from-start"]);
}

/// Each context needs the addresses that the other one has just released. Their cuts show one
/// moment, and the history begins where the shorter ring does.
#[test]
fn contexts_of_one_device_fit_together() {
    let place = Place::new();
    let conf = "record:all,context:none,max_entries:300,log:quiet";
    place.run(&trigger("two_contexts 60").conf(conf)).ok();
    place.sound(61..=64, &[]);
}

/// A snapshot between the arrival of memory and the end of its request shows the block in use, as
/// the core does, because both are recorded under the same lock. Without that rule the snapshot is
/// not sound.
#[test]
fn block_and_its_memory_are_recorded_together() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let conf = "record:all,context:none,max_entries:300,log:quiet";
    let run = trigger("two_contexts 60").conf(conf);
    place.run(&run.env("CACHEALLOC_BREAK", "arrived_is_recorded")).ok();
    let sound = std::panic::catch_unwind(|| place.sound(61..=64, &[]));
    assert!(sound.is_err(), "the rule is not needed");
}

/// A file contains as many entries as the option allows, and a free counts as two.
#[test]
fn entries_are_counted_as_in_the_file() {
    if lacks("python3") {
        return;
    }
    for max in [1, 2, 5, 6, 50] {
        let place = Place::new();
        let conf = format!("record:all,context:none,max_entries:{max},log:quiet,snapshot:m.pickle");
        place.run(&Run::c("planted.c").arg("2").conf(&conf)).ok();
        place.sound(1..=1, &[]);
        let script = "
import pickle
s = pickle.load(open('m.pickle', 'rb'))
settings = s['allocator_settings']
print(len(s['device_traces'][0]), settings['trace_alloc_overflowed'])";
        assert_eq!(python(&place, script), format!("{max} True\n"));
    }
}

/// The settings in a file are those in force.
#[test]
fn settings_are_those_in_force() {
    if lacks("python3") {
        return;
    }
    let script = "
import pickle
s = pickle.load(open('m.pickle', 'rb'))['allocator_settings']
print(s['graph_capture_record_stream_reuse'], list(s['roundup_power2_divisions'].values()))";
    for (conf, wanted) in [
        ("", "True [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n"),
        (
            "graph_capture_record_stream_reuse:false,roundup_power2_divisions:[4:2,>:8]",
            "False [2, 2, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]\n",
        ),
    ] {
        let place = Place::new();
        let conf = format!("record:all,log:quiet,snapshot:m.pickle,{conf}");
        place.run(&Run::c("planted.c").arg("2").conf(&conf)).ok();
        assert_eq!(python(&place, script), wanted);
    }
}

fn python(place: &Place, script: &str) -> String {
    let ran = Command::new("python3").args(["-c", script]).current_dir(&place.path).output();
    String::from_utf8_lossy(&ran.expect("python3 runs").stdout).into_owned()
}

#[test]
fn snapshots_are_whole_while_four_threads_allocate() {
    let place = Place::new();
    let conf = "record:all,max_entries:500,log:quiet";
    place.run(&trigger("api_busy 12").conf(conf)).ok();
    place.sound(13..=13, &["--opcodes"]);
}

/// Blocks and entries that change while a snapshot copies them appear as they were at its cut.
#[test]
fn snapshots_show_one_moment_of_many_blocks() {
    let place = Place::new();
    let conf = "record:all,context:none,max_entries:20000,log:quiet";
    let count = tier::count(6, 60);
    place.run(&Run::c("snapshots_beside.c").arg(count.to_string()).conf(conf)).ok();
    place.sound(count + 1..=count + 1, &["--opcodes"]);
}

#[test]
fn a_call_answers_an_errno() {
    let place = Place::new();
    let way = "api NULL a.pickle /nowhere/x / /dev/null a.pickle/x";
    let ran = place.run(&trigger(way).conf("record:all")).ok();
    assert_eq!(ran.stdout, "0\n0\n2\n22\n22\n20\n", "{ran:#?}");
    assert_eq!(
        ran.stderr.matches("cannot write a snapshot").count(),
        4,
        "one line each: {}",
        ran.stderr
    );
    place.sound(3..=3, &["--from-start"]);
}

#[test]
fn a_call_works_without_the_options_and_on_a_small_stack() {
    for conf in ["signal:off", "record:off", "record:all"] {
        let place = Place::new();
        place.run(&trigger("api_on_a_small_stack").conf(conf)).ok();
        place.sound(1..=2, &[]);
    }
}

/// The call returns before CUDA is used, while other threads allocate, and in a forked child, which
/// has nothing to write.
#[test]
fn a_call_returns_anywhere() {
    let place = Place::new();
    let ran = place.run(&trigger("api_anywhere").conf("record:all,max_entries:500")).ok();
    assert_eq!(ran.stdout, "before: 0\n");
    place.sound(3..=3, &[]);
    assert!(!place.names().contains(&"child.pickle".to_string()), "a child wrote one");
}

#[test]
fn out_of_memory_is_reported_before_the_error() {
    let place = Place::new();
    let ran = place.run(&trigger("out_of_memory 5").conf("record:all")).ok();
    assert_eq!(ran.stdout, "code 2\n");
    let count = |text: &str| ran.stderr.matches(text).count();
    // The first and the last failure are reported in full, the second in short, and one line sums
    // up all.
    assert_eq!(count("out of memory on device 0: cuMemAlloc asked for"), 3, "{ran:#?}");
    assert_eq!(count("out of memory again on device 0: cuMemAlloc asked for"), 1, "{ran:#?}");
    assert_eq!((count("  asked by"), count("  held by")), (3, 2), "{ran:#?}");
    for part in ["held by:", "out_of_memory", "triggers.c", "MiB in"] {
        assert!(ran.stderr.contains(part), "the report lacks {part:?}: {}", ran.stderr);
    }
    place.sound(4..=4, &["--from-start"]);
    let quiet = trigger("out_of_memory 2").conf("log:quiet").output().ok();
    assert_eq!(quiet.stderr, "");
    let plain = trigger("out_of_memory 2").folder(&place.path).output().ok();
    assert!(plain.stderr.contains("not recorded"), "{}", plain.stderr);
    place.sound(4..=4, &[]);
}

/// A thread of the library resolves the names: the program's thread may have too little stack.
#[test]
fn out_of_memory_on_a_small_stack() {
    let place = Place::new();
    let ran = place.run(&trigger("out_of_memory_on_a_small_stack").conf("record:all")).ok();
    assert_eq!(ran.stdout, "code 2\n", "{ran:#?}");
    place.sound(2..=2, &["--from-start"]);
}

/// Writes of the library during the call are not cancellation points.
#[test]
fn thread_is_cancelled_where_the_driver_allows_it() {
    for conf in ["record:all", "log:warn", "signal:off"] {
        let place = Place::new();
        let ran = place.run(&trigger("cancelled").conf(conf)).ok();
        assert_eq!(ran.stdout, "both calls return\ncancelled 1\n", "{conf}: {ran:#?}");
        place.sound(1..=3, &[]);
    }
}

/// A snapshot that is being written has no name, so that nothing remains if the process is killed.
#[test]
fn snapshot_has_a_name_when_it_is_complete() {
    const LAST: u8 = b'.';
    let place = Place::new();
    if !has_unnamed_files(&place.path) {
        return skipped("files of this file system need a name");
    }
    let run = Run::program(env!("CARGO_BIN_EXE_random")).args("3 20000 2 own");
    let mut child = spawn(&place, &run.conf("record:all,snapshot:s.pickle,log:quiet"));
    while child.try_wait().expect("a child").is_none() {
        for name in place.names() {
            // It may have another name by now.
            let Ok(bytes) = fs::read(place.path.join(&name)) else { continue };
            assert_eq!(bytes.last(), Some(&LAST), "{name} is incomplete");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(place.names(), ["s.pickle"]);
}

#[test]
fn a_full_disk_is_one_line_and_no_file() {
    for (how, conf, answer) in [
        ("exit", "record:all", ""),
        ("signal", "record:off", ""),
        ("api", "record:off", "answer 27\n"),
        ("api", "signal:off", "answer 27\n"),
    ] {
        let place = Place::new();
        let ran = place.run(&trigger(&format!("file_limit {how}")).conf(conf));
        assert_eq!((ran.code, &*ran.stdout), (Some(3), answer), "{how}, {conf}: {ran:#?}");
        assert_eq!(
            ran.stderr.matches("cannot write a snapshot").count(),
            1,
            "{how}, {conf}: {ran:#?}"
        );
        place.sound(0..=0, &[]);
    }
}

#[test]
fn missing_folder_is_one_line() {
    for template in ["/nowhere/%p.pickle", "/proc/%p.pickle", "/dev/null"] {
        let place = Place::new();
        let ran = place.run(&trigger("return").conf(&format!("record:all,snapshot:{template}")));
        assert_eq!((ran.code, ran.said().len()), (Some(3), 1), "{template}: {ran:#?}");
        place.sound(0..=0, &[]);
    }
}

#[test]
fn names_follow_the_template() {
    let place = Place::new();
    let run = trigger("return").conf("record:all,snapshot:a-%r-%n%%.pickle");
    place.run(&run);
    place.run(&run.clone().env("RANK", "7"));
    place.run(&run.env("SLURM_PROCID", "3").env("RANK", "x"));
    assert_eq!(place.names(), ["a-0%.pickle", "a-3-0%.pickle", "a-7-0%.pickle"]);
    place.sound(3..=3, &["--from-start"]);
}

#[test]
fn snapshots_are_in_the_folder_of_the_start() {
    let place = Place::new();
    place.run(&trigger("move /").conf("record:all")).ok();
    place.sound(2..=2, &["--from-start"]);
}

#[test]
fn only_live_blocks_are_remembered_with_state() {
    let place = Place::new();
    let ran = place.run(&trigger("two_contexts 5").conf("record:state")).ok();
    assert!(!ran.stderr.contains("max_entries"), "nothing is missing: {}", ran.stderr);
    place.sound(6..=9, &[]);
}

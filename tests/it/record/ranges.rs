//! Ranges: memory allocated in each phase of a program, as the program marks them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use cachealloc_tests::{Run, compile, lacks, library, root};
use serde_json::Value;

use crate::command::{cachealloc, under};
use crate::record::snapshots::Place;

/// Returns the memory that each range holds at the end, in KiB.
fn held(place: &Place, file: &str) -> BTreeMap<String, u64> {
    let arguments = format!("top-sites {file} --group range --at end -n 0 --json");
    let text = place.run(&cachealloc(&arguments)).ok().stdout;
    let json: Value = serde_json::from_str(&text).expect("it is JSON");
    let sites = json["sites"].as_array().expect("a list");
    let one = |site: &Value| {
        let range = site["range"].as_str().expect("a text").to_string();
        (range, site["live_bytes"].as_u64().expect("a number") >> 10)
    };
    let held: BTreeMap<_, _> = sites.iter().map(one).collect();
    assert_eq!(held.len(), sites.len(), "each once: {text}");
    held
}

fn wanted(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
    all.iter().map(|(range, kib)| (range.to_string(), *kib)).collect()
}

#[test]
fn allocations_are_attributed_to_phases() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let run = Run::c("ranges.c").arg("phases").conf("record:all,snapshot:a.pickle,log:quiet");
    place.run(&run).ok();
    let deep = vec!["deep"; 64].join("/");
    let phases =
        [("", 2), ("load", 2), ("step/forward", 16), ("step", 32), ("main", 16), ("worker", 64)];
    assert_eq!(held(&place, "a.pickle"), wanted(&[&phases[..], &[("deep", 32)]].concat()));
    let table = place.run(&cachealloc("top-sites a.pickle --group range --by count -n 3")).ok();
    for row in ["by range:\n", "  app      step/backward\n", "  app      step/forward\n"] {
        assert!(table.stdout.contains(row), "{row}: {}", table.stdout);
    }
    let by = place.run(&cachealloc("top-sites a.pickle --by range --by count -n 3")).ok();
    assert_eq!(by.stdout, table.stdout);
    let at_end = place.run(&cachealloc("top-sites a.pickle --group range --at end")).ok().stdout;
    assert!(at_end.contains("  app      (in no range)\n"), "{at_end}");
    assert!(!at_end.contains(&deep), "{at_end}");
    // The entry of a free records the program's range at that time; PyTorch's viewer shows it with
    // the entry.
    for format in ["perfetto", "pprof"] {
        place.run(&cachealloc(&format!("convert a.pickle --to {format} -o {format}"))).ok();
    }
    const JUDGE: &str = "
import gzip, pickle, perfetto
entries = pickle.load(open('a.pickle', 'rb'))['device_traces'][0]
said = [(entry['action'], entry['user_metadata']) for entry in entries if entry['size'] == 100 << 10]
once = [(action, 'step/backward') for action in ('alloc', 'free_requested', 'free_completed')]
assert said == 4 * once, said
# Each time that a range is entered is told apart, by the first entry inside.
entered = [(entry['user_metadata'], entry['range_entered']) for entry in entries if 'range_entered' in entry]
steps = 4 * [('step/forward', 1), ('step/backward', 2)]
assert entered[:10] == [('load', 1), *steps, ('worker', 1)], entered
assert (entered[10], entered[11][1], len(entered)) == (('main', 1), 1, 12), entered
annotations = pickle.load(open('a.pickle', 'rb'))['external_annotations']
started = [it['name'] for it in annotations if it['stage'] == 'START']
assert [started.count(range) for range in ('load', 'step', 'step/backward', 'worker')] == [1, 4, 4, 1], started
slices = [begin for begin, _ in perfetto.slices(*perfetto.read('perfetto'))]
assert 'annotation' not in {begin.category for begin in slices}
passes = [begin.name for begin in slices if begin.category == 'range']
assert [passes.count(range) for range in ('load', 'step', 'step/backward', 'worker')] == [1, 4, 4, 1], passes
ranges = [begin.said.get('range') for begin in slices if begin.category == 'app']
assert (ranges.count('step/forward'), ranges.count(None)) == (4, 2), ranges
profile = gzip.open('pprof').read()
assert profile.count(b'step/forward') == profile.count(b'worker') == 1
";
    let mut judge = Command::new("python3");
    let judge = judge.args(["-c", JUDGE]).env("PYTHONPATH", root().join("tests/it/command/files"));
    let judged = judge.current_dir(&place.path).output().expect("python3");
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    for group in ["--group range", "--by range"] {
        let same = place.run(&cachealloc(&format!("diff a.pickle a.pickle {group}"))).ok().stdout;
        assert!(same.ends_with("no call site holds more or less\n"), "{same}");
    }
    for (twice, what) in [
        ("--by range --group line", "the grouping of call sites is given twice"),
        ("--by count --by live", "the order is given twice"),
    ] {
        let ran = place.run(&cachealloc(&format!("top-sites a.pickle {twice}")));
        assert_eq!((ran.code, ran.stderr.contains(what)), (Some(2), true), "{ran:?}");
    }
}

/// The number of names is bounded: an allocation in a range without a number counts for the
/// enclosing one.
#[test]
fn more_range_names_than_fit() {
    let place = Place::new();
    let run = Run::c("ranges.c").arg("many").conf("record:all,snapshot:a.pickle,log:quiet");
    place.run(&run).ok();
    let wanted = wanted(&[("", 1), ("step/number 0", 4), ("step", 24)]);
    assert_eq!(held(&place, "a.pickle"), wanted);
}

#[test]
fn recording_begins_in_the_midst_of_a_range() {
    let place = Place::new();
    let run = Run::c("ranges.c").arg("late").conf("snapshot:end.pickle,log:quiet");
    place.run(&run).ok();
    assert_eq!(held(&place, "late.pickle"), wanted(&[("", 1), ("inside", 4)]));
    // Ranges do nothing if nothing is recorded.
    for way in ["phases", "many"] {
        place.run(&Run::c("ranges.c").arg(way).conf("log:quiet")).ok();
    }
}

/// All calls of NVTX, once `run` has named the library to it.
#[test]
fn ranges_of_nvtx() {
    let place = Place::new();
    let program = compile("nvtx.c");
    let ran = place.run(&under("--record --snapshot a.pickle --log quiet", &program, "")).ok();
    let named = fs::canonicalize(library()).expect("the library");
    assert_eq!(ran.stdout, format!("{}\na tool\n", named.display()));
    let phases = [
        ("", 193),
        ("plain", 2),
        ("plain/with attributes", 4),
        ("plain/w\u{ef}de", 8),
        ("wide/registered", 16),
        ("wide", 32),
    ];
    assert_eq!(held(&place, "a.pickle"), wanted(&phases));
}

/// If a profiler is already named there, it stays. If nothing is recorded, no library is named, and
/// a build of NVTX that looks the function up by name alone finds no tool.
#[test]
fn a_profiler_keeps_its_place() {
    let place = Place::new();
    let program = compile("nvtx.c");
    let profiler = "/no/such/profiler.so";
    let ran = place
        .run(
            &under("--record --snapshot a.pickle --log quiet", &program, "")
                .env("NVTX_INJECTION64_PATH", profiler),
        )
        .ok();
    assert_eq!(ran.stdout, format!("{profiler}\nno tool\n"));
    assert_eq!(held(&place, "a.pickle").len(), 1);
    let ran = place.run(&under("--log quiet", &program, "")).ok();
    assert_eq!(ran.stdout, "nothing\nno tool\n");
    let recording = Run::c("nvtx.c").conf("record:all,snapshot:b.pickle,log:quiet");
    assert_eq!(place.run(&recording).ok().stdout, "nothing\nno tool\n");
    assert_eq!(held(&place, "b.pickle").len(), 1);
}

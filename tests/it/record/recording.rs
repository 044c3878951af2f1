//! A program that switches the recording on and off: every snapshot is sound, whatever was
//! allocated before, and whichever thread allocates meanwhile.

use std::process::Command;

use cachealloc_tests::{Run, lacks};

use crate::record::snapshots::Place;

fn recording(what: &str) -> Run {
    Run::c("recording.c").arg(what)
}

#[test]
fn only_valid_levels_are_accepted() {
    let place = Place::new();
    let ran = place.run(&recording("words")).ok();
    assert_eq!(ran.stderr, "");
    place.sound(0..=0, &[]);
}

/// Blocks from before the recording are in the snapshot; their only entry is their free.
#[test]
fn earlier_memory_is_known() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let ran = place.run(&recording("late")).ok();
    assert_eq!(ran.stderr, "", "no snapshot at exit, and no message");
    let said = place.sound(4..=4, &["--opcodes"]);
    let lines: Vec<_> = said.lines().collect();
    let has = |line: usize, what: &str| assert!(lines[line].contains(what), "{what}: {said}");
    has(0, " 0 entries");
    // Three allocations, two frees of two entries each, and the segments that `trim` released.
    has(1, "not from the start");
    has(2, " 0 entries");
    has(3, "not from the start");
    // These blocks have the sizes that the program requested, as in the history of any other block.
    let sizes = "import pickle\n\
        s = [pickle.load(open(f'{n}.pickle', 'rb')) for n in range(4)]\n\
        print(sum(g['requested_size'] for g in s[0]['segments']))\n\
        for n in (1, 3):\n  \
          print([e['size'] for e in s[n]['device_traces'][0] if e['action'] == 'free_completed'])";
    let python = Command::new("python3").args(["-c", sizes]).current_dir(&place.path).output();
    let said = String::from_utf8_lossy(&python.expect("python3 runs").stdout).into_owned();
    assert_eq!(said, "9003000\n[1000, 3001000]\n[3000500, 4096, 1000]\n");
}

/// Entries name the thread and place that released memory, not those that once requested it. Later
/// snapshots also record that a snapshot was taken.
#[test]
fn releases_and_snapshots_are_entries() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    place.run(&recording("late").conf("log:quiet")).ok();
    let script = "
import pickle
entries = pickle.load(open('1.pickle', 'rb'))['device_traces'][0]
print(entries[0]['action'], entries[0]['size'])
for e in entries:
    if e['action'] == 'segment_free':
        print(*[f['name'] for f in e['frames'] if f['name'] in ('late', 'main')])
        break";
    let python = Command::new("python3").args(["-c", script]).current_dir(&place.path).output();
    let said = String::from_utf8_lossy(&python.expect("python3 runs").stdout).into_owned();
    // Exactly the size of the earlier blocks.
    assert_eq!(said, "snapshot 9003520\nlate main\n");
}

/// Every entry for the end of memory names the call that ended it.
#[test]
fn every_end_names_its_caller() {
    if lacks("python3") {
        return;
    }
    let script = "
import pickle
s = pickle.load(open('r.pickle', 'rb'))
entries = s['device_traces'][0] + s['host_traces']
ends = [e for e in entries if e['action'] in ('segment_free', 'segment_unmap', 'free_requested')]
by = lambda e: next((f['name'] for f in e.get('frames', ()) if f['name'][:3] in ('by_', 'tak', 'mai')), '-')
by_way = {}
for e in ends:
    by_way.setdefault(e['action'], set()).add(by(e))
print({action: sorted(ways) for action, ways in sorted(by_way.items())})";
    let freed = "'by_array', 'by_driver_free', 'by_free_host', 'by_reset', 'by_retry', 'by_unmap', \
                 'by_unregister', 'main', 'take_most'";
    let ended = "'by_array', 'by_driver_free', 'by_reset'";
    let others = "'by_unmap', 'by_unregister'";
    for (conf, wanted) in [
        ("false", format!("'segment_free': [{ended}, 'by_retry', 'by_trim', {others}]")),
        (
            "true",
            format!(
                "'segment_free': [{ended}, {others}], 'segment_unmap': ['by_reset', 'by_trim']"
            ),
        ),
    ] {
        let place = Place::new();
        let conf = format!(
            "record:all,log:quiet,snapshot:r.pickle,idle_release_s:off,expandable_segments:{conf}"
        );
        place.run(&Run::c("releases.c").conf(&conf)).ok();
        let python = Command::new("python3").args(["-c", script]).current_dir(&place.path).output();
        let said = String::from_utf8_lossy(&python.expect("python3 runs").stdout).into_owned();
        assert_eq!(said, format!("{{'free_requested': [{freed}], {wanted}}}\n"));
    }
}

/// Blocks that the driver served itself are recorded as well.
#[test]
fn earlier_driver_memory_is_known() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let ran = place.run(&recording("driver")).ok();
    assert_eq!(ran.stderr, "");
    place.sound(3..=3, &["--opcodes"]);
    let script = "
import pickle
for n in range(3):
    s = pickle.load(open(f'{n}.pickle', 'rb'))
    print([(g['total_size'] >> 20, g['frames']) for g in s['segments']],
          [(e['action'], e['size'] >> 20) for e in s['device_traces'][0]])";
    let python = Command::new("python3").args(["-c", script]).current_dir(&place.path).output();
    let said = String::from_utf8_lossy(&python.expect("python3 runs").stdout).into_owned();
    let mut lines: Vec<_> = said.lines().map(|line| line.replace(", []", "")).collect();
    lines.iter_mut().for_each(|line| line.retain(|c| c != '\''));
    let first = lines[0].strip_suffix(" []").expect("no entry");
    let mut live: Vec<_> = first.trim_matches(['[', ']']).split(", ").collect();
    live.sort_unstable();
    assert_eq!(live, ["(1)", "(2)", "(4)"], "{said}");
    let frees = |bytes| {
        format!("(free_requested, {bytes}), (free_completed, {bytes}), (segment_free, {bytes})")
    };
    assert_eq!(lines[1], format!("[(2)] [{}, {}]", frees(1), frees(4)));
    assert_eq!(lines[2], format!("[] [{}]", frees(2)), "{said}");
}

/// The arguments are those of PyTorch's `_record_memory_history`, changed while the program runs.
#[test]
fn all_parameters_may_change() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let ran = place.run(&recording("parameters")).ok();
    assert_eq!(ran.stderr, "");
    place.sound(6..=6, &["--opcodes"]);
    let script = "
import pickle
for n in range(6):
    s = pickle.load(open(f'{n}.pickle', 'rb'))
    entries = [e for d in s['device_traces'] for e in d]
    live = [b for g in s['segments'] for b in g['blocks'] if b['state'] == 'active_allocated']
    has_stack = lambda it: '+' * bool(it.get('frames'))
    print(*[e['action'] + has_stack(e) for e in entries], '|',
        *[str(b['requested_size']) + has_stack(b) for b in live])
";
    let python = Command::new("python3").args(["-c", script]).current_dir(&place.path).output();
    let said = String::from_utf8_lossy(&python.expect("python3 runs").stdout).into_owned();
    let lines: Vec<_> = said.lines().collect();
    let wanted = [
        "segment_alloc+ alloc+ alloc | 1000+ 2000",
        "| 1000+ 2000",
        // A program without Python has no frames to show.
        "alloc free_requested free_completed | 1000+ 3000",
        "free_requested free_completed | 3000",
        "| 3000",
        // A free is two entries in the file, of which only one was requested.
        "free_completed+ | 3000",
    ];
    assert_eq!(lines, wanted);
}

/// A recording that goes on may be restricted to one device: what was recorded of the other one is
/// dropped, and nothing of this one. Extended to both again, it begins with the blocks there are.
#[test]
fn the_device_may_change() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let ran = place.run(&recording("devices").env("SIM_DEVICES", "2")).ok();
    assert_eq!(ran.stderr, "");
    place.sound(3..=3, &["--opcodes"]);
    let script = "
import pickle
for n in range(3):
    s = pickle.load(open(f'{n}.pickle', 'rb'))
    for device in range(2):
        sizes = [e['size'] for e in s['device_traces'][device] if e['action'] == 'alloc']
        blocks = [b for g in s['segments'] if g['device'] == device for b in g['blocks']]
        known = [b['requested_size'] for b in blocks if b.get('frames')]
        print(n, device, sizes, known)";
    let python = Command::new("python3").args(["-c", script]).current_dir(&place.path).output();
    let said = String::from_utf8_lossy(&python.expect("python3 runs").stdout).into_owned();
    let lines: Vec<_> = said.lines().collect();
    let wanted = [
        "0 0 [1000] [1000]",
        "0 1 [1000] [1000]",
        "1 0 [] []",
        "1 1 [1000, 2000] [1000, 2000]",
        "2 0 [3000] [3000]",
        "2 1 [1000, 2000, 3000] [1000, 2000, 3000]",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn frees_that_are_pending_end_later() {
    let place = Place::new();
    place.run(&recording("pending").conf("log:quiet")).ok();
    place.sound(2..=2, &["--opcodes"]);
}

#[test]
fn recording_can_be_switched_at_any_moment() {
    for conf in ["signal:USR1", "expandable_segments:true", "max_entries:50,free_mode:relaxed"] {
        let place = Place::new();
        let run =
            recording("switches").env("SIM_MEMORY_MB", "256").conf(&format!("{conf},log:quiet"));
        let ran = place.run(&run).ok();
        assert_eq!(ran.report.races(), 0, "{}", ran.report.text);
        place.sound(40..=40, &[]);
    }
}

/// The snapshot is written as with the option, even if nothing else needs a call at exit.
#[test]
fn a_snapshot_is_written_at_exit() {
    for conf in ["signal:USR1", "signal:off"] {
        let place = Place::new();
        place.run(&recording("at_exit").conf(conf)).ok();
        let said = place.sound(1..=1, &[]);
        assert!(!said.contains(" 0 entries"), "{conf}: {said}");
    }
}

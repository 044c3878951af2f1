//! Formats for other tools: JSON that stays valid whatever a function is called, lines that split
//! as they should, and several files in one table.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use cachealloc_analysis::model::{
    Action, Annotation, Device, Entries, Entry, Frame, FrameId, Snapshot, StackId, TextId,
};
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Aggregate, Group, Lifetimes, SiteKey, When, difference, formats};

use crate::made::{self, Directory};
use crate::python;
use crate::skip::lacks;

/// The frames of the stack, innermost first, as names and lines; and the bytes.
type Alloc<'a> = (&'a [(&'a str, u64)], u64);

/// A device whose blocks are all live.
fn device(snapshot: &mut Snapshot, allocs: &[Alloc]) -> Device {
    let mut entries = Entries::default();
    let mut blocks = Vec::new();
    for (address, (frames, bytes)) in (1..).zip(allocs) {
        let frames: Vec<FrameId> = frames
            .iter()
            .map(|&(name, line)| {
                let (name, filename) = (snapshot.texts.add(name), snapshot.texts.add("/a/b.c"));
                snapshot.frames.add(Frame { name, filename, line })
            })
            .collect();
        let stack = snapshot.stacks.add(&frames);
        let address = address * 1000;
        blocks.push(cachealloc_analysis::model::Block {
            address,
            bytes: *bytes,
            requested_bytes: *bytes,
            state: cachealloc_analysis::model::BlockState::Allocated,
            stack,
            category: TextId::EMPTY,
        });
        entries.push(Entry {
            time_us: 0,
            address,
            bytes: *bytes,
            stream: 0,
            stack,
            category: TextId::EMPTY,
            compile_context: TextId::EMPTY,
            user_metadata: TextId::EMPTY,
            pool: Default::default(),
            action: Action::Alloc,
            entered: 0,
        });
    }
    let segment = cachealloc_analysis::model::Segment {
        address: 0,
        bytes: 1 << 20,
        stream: 0,
        small: false,
        pool: Default::default(),
        expandable: false,
        stack: StackId::NONE,
        blocks,
    };
    Device { segments: vec![segment], entries }
}

fn snapshot(devices: &[&[Alloc]]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for allocs in devices {
        let device = device(&mut snapshot, allocs);
        snapshot.devices.push(device);
    }
    snapshot
}

fn folded(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    formats::folded(snapshot, SiteKey::Live, When::End, &mut out).expect("memory takes it");
    String::from_utf8(out).expect("text")
}

#[test]
fn folded_lines() {
    let one: &[Alloc] =
        &[(&[("f;g\n", 1), ("main", 2)], 5), (&[], 7), (&[("f;g\n", 1), ("main", 2)], 6)];
    assert_eq!(folded(&snapshot(&[one])), "main a/b.c:2;f:g  a/b.c:1 11\n[no stack] 7\n");
    let two: &[Alloc] = &[(&[("main", 2)], 1)];
    assert_eq!(
        folded(&snapshot(&[one, two])),
        "device 0;main a/b.c:2;f:g  a/b.c:1 11\ndevice 0;[no stack] 7\ndevice 1;main a/b.c:2 1\n"
    );
    assert_eq!(folded(&Snapshot::default()), "");
}

/// Names contain quotes, backslashes, control characters and the like.
#[test]
fn python_reads_the_json() {
    if lacks("python3") {
        return;
    }
    const JUDGE: &str = "
import json, sys
for path in sys.argv[1:]:
    text = open(path, encoding='utf-8').read()
    names = {frame['name'] for frame in json.loads(text).get('frames', [])}
    if path.endswith('.json') and len(names) > 5:
        assert {'operator()<int, \"x\">', '漢字\\t\\x01\\\\', '😀', 'größe'} <= names, names
        print('all names')
";
    let directory = Directory::new("json");
    let mut paths = Vec::new();
    for seed in 0..6 {
        let snapshot = made::read(&made::pickled(&made::history(seed, seed * 40)));
        for format in ["json", "speedscope"] {
            let path = directory.0.join(format!("{seed}.{format}"));
            let mut out = Vec::new();
            let written = match format {
                "json" => formats::json(&snapshot, &mut out),
                _ => formats::speedscope(&snapshot, "a \"name\"", &mut out),
            };
            written.expect("memory takes it");
            fs::write(&path, out).expect("a file");
            paths.push(path);
        }
    }
    let files: Vec<_> = paths.iter().map(|path| path.as_path()).collect();
    assert!(python::expect(&["-c", JUDGE], &files).contains("all names"));
}

/// Blocks are allocated and freed in any order. The memory that one call site holds at once is on
/// several tracks.
#[test]
fn traces_add_up() {
    if lacks("python3") {
        return;
    }
    const JUDGE: &str = "
import sys
sys.path.insert(0, sys.argv[1])
import perfetto
for path in sys.argv[2:]:
    counts, slices = perfetto.judge(path)
    tracks, events = perfetto.read(path)
    blocks = [tracks[event.track].name for event in events if event.kind == perfetto.BEGIN]
    sites = [track.name for track in tracks.values() if track and track.name in blocks]
    print(slices, 'slices', 'several' if len(sites) > len(set(sites)) else 'one')
";
    let directory = Directory::new("traces");
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/command/files");
    let mut paths = vec![judge];
    let mut wanted = String::new();
    for seed in 1..9 {
        let mut snapshot = made::read(&made::pickled(&made::history(seed, 10 + seed * 40)));
        if seed % 2 == 1 {
            // The history began late, so it lacks allocations that its entries free. It also lacks
            // the requests of frees.
            made::edit(&mut snapshot.devices[0].entries, |entries| {
                entries.drain(..entries.len() / 3);
                entries.retain(|entry| entry.action != Action::FreeRequested);
            });
        }
        let lives = snapshot.devices.iter().map(|device| Lifetimes::of(device).all.len());
        writeln!(wanted, "{} slices several", lives.sum::<usize>()).expect("memory takes it");
        let mut out = Vec::new();
        formats::perfetto(&snapshot, &mut out).expect("memory takes it");
        paths.push(directory.0.join(format!("{seed}.pftrace")));
        fs::write(&paths[paths.len() - 1], out).expect("a file");
    }
    let paths: Vec<_> = paths.iter().map(|path| path.as_path()).collect();
    assert_eq!(python::expect(&["-c", JUDGE], &paths), wanted);
}

/// Annotations made by a program, of several threads at once and on a device without entries.
#[test]
fn annotations_in_a_trace() {
    if lacks("python3") {
        return;
    }
    let mut snapshot = snapshot(&[&[(&[("f", 1)], 5)]]);
    let [step, load] = ["step", "load"].map(|name| snapshot.texts.add(name));
    let annotation = |name, begin, device, time_us| Annotation { name, begin, device, time_us };
    snapshot.annotations = vec![
        annotation(step, true, 0, 1),
        annotation(load, true, 0, 2),
        annotation(step, false, 0, 3),
        annotation(load, false, 0, 4),
        annotation(step, true, 7, 5),
        annotation(step, false, 7, 6),
    ];
    const JUDGE: &str = "
import sys
sys.path.insert(0, sys.argv[1])
import perfetto
tracks, events = perfetto.read(sys.argv[2])
for begin, end in perfetto.slices(tracks, events):
    if begin.category == 'annotation':
        track = tracks[begin.track]
        print(tracks[track.parent].name, track.name, begin.name, begin.time_ns, end.time_ns)
";
    let directory = Directory::new("annotations");
    let path = directory.0.join("a.pftrace");
    let file = fs::File::create(&path).expect("a file");
    formats::perfetto(&snapshot, file).expect("room");
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/command/files");
    assert_eq!(
        python::expect(&["-c", JUDGE], &[&judge, &path]),
        "device 0 step step 1000 3000\ndevice 0 load load 2000 4000\ndevice 7 step step 5000 6000\n"
    );
}

/// Two files number their stacks differently; the same texts are the same site.
#[test]
fn files_in_one_table() {
    let first = snapshot(&[&[
        (&[("f", 1), ("main", 2)], 10),
        (&[("f", 1), ("other", 3)], 30),
        (&[("gone", 1)], 4),
        (&[("same", 1)], 8),
    ]]);
    let second = snapshot(&[&[
        (&[("new", 1)], 1),
        (&[("same", 1)], 8),
        (&[("f", 1), ("main", 2)], 15),
        (&[("f", 1), ("other", 3)], 20),
    ]]);
    let mut common = Snapshot::default();
    let [mut before, mut after] = [Aggregate::default(), Aggregate::default()];
    before.add(&mut common, &first, When::End, None);
    after.add(&mut common, &second, When::End, None);
    let names = Names::of(&common);
    let text = |stack| {
        let frames = common.frames_of(stack).map(|frame| common.texts.get(frame.name));
        frames.collect::<Vec<_>>().join(" < ")
    };
    let changes = |group| {
        let all = difference(&common, &names, group, &before, &after);
        let told = all.iter().map(|it| {
            let state = (it.is_new(), it.is_gone());
            (text(it.site.stack), it.growth_bytes(), it.growth_count(), state)
        });
        told.collect::<Vec<_>>()
    };
    let is = |text: &str, bytes, count, state| (text.to_string(), bytes, count, state);
    assert_eq!(
        changes(Group::Stack),
        [
            is("f < other", -10, 0, (false, false)),
            is("f < main", 5, 0, (false, false)),
            is("gone", -4, -1, (false, true)),
            is("new", 1, 1, (true, false)),
        ]
    );
    assert_eq!(changes(Group::Line)[0], is("f < other", -5, 0, (false, false)));
    // The line shows the stack that has most of the requested total.
    let sites = after.grouped(&common, &names, Group::Function, |totals| totals.live_bytes);
    let shown: Vec<_> = sites.iter().map(|it| (text(it.stack), it.totals.live_bytes)).collect();
    assert_eq!(shown, [("new".into(), 1), ("same".into(), 8), ("f < other".to_string(), 35)]);
    // By the function that the thread runs, whatever it called.
    let sites = after.grouped(&common, &names, Group::Thread, |totals| totals.live_bytes);
    let runs = |stack| {
        let frame = common.frames.get(names.outermost(&common, stack).expect("a frame"));
        common.texts.get(frame.name).to_string()
    };
    let shown: Vec<_> = sites.iter().map(|it| (runs(it.stack), it.totals.live_bytes)).collect();
    let wanted = [("new", 1), ("same", 8), ("main", 15), ("other", 20)];
    assert_eq!(shown, wanted.map(|(name, bytes)| (name.to_string(), bytes)));
    assert_eq!(after.totals().live_bytes, 44);
    assert_eq!(after.devices[0].at_bytes, 44);
    // One device does not exist, and one was not requested.
    let mut none = Aggregate::default();
    none.add(&mut common, &second, When::End, Some(1));
    assert_eq!((none.sites.len(), none.devices.len()), (0, 0));
}

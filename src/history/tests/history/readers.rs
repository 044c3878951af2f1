//! Independent readers read the library's files: Python's own pickle, compared with JSON that was
//! written separately, and serde-pickle, which shares no code with either.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cachealloc_history::{
    Action, Describe, Device, Entry, Frame, NAME_BYTES_MAX, Snapshot, StackId, write_snapshot,
};
use serde_pickle::{DeOptions, HashableValue, Value, value_from_slice};

use crate::files::Directory;
use crate::skip::lacks;
use crate::{json, python, random, soundness};

/// Compares each pickle with the JSON beside it, including types. The writer adds `unknown` where
/// there are categories, so it is removed, but one must be present.
const COMPARE: &str = r#"
import json, pickle, sys

def plain(value, path):
    if isinstance(value, tuple):
        assert path[-1] in ("pool_id", "segment_pool_id"), path
        return [plain(item, path) for item in value]
    if isinstance(value, list):
        assert path[-1] not in ("pool_id", "segment_pool_id"), path
        return [plain(item, path) for item in value]
    if isinstance(value, dict):
        return {key: plain(item, path + [key]) for key, item in value.items()}
    return value

for path in sys.argv[1:]:
    snapshot = plain(pickle.load(open(path, "rb")), [path])
    entries = [entry for entries in snapshot["device_traces"] for entry in entries]
    categories = {entry["category"] for entry in entries if "category" in entry}
    assert not categories or "unknown" in categories, (path, categories)
    for entry in entries + snapshot["host_traces"]:
        if entry.get("category") == "unknown":
            del entry["category"]
    expected = json.load(open(path + ".json"))
    found, expected = (json.dumps(value, sort_keys=True) for value in (snapshot, expected))
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), 0)
    assert found == expected, f"{path}: {found[at-200:at+100]}\n\n{expected[at-200:at+100]}"
print(len(sys.argv) - 1)
"#;

#[test]
fn python_reads_what_was_written() {
    if lacks("python3") {
        return;
    }
    let directory = Directory::new("python");
    let steps = (0..60).map(|seed| seed * 5).chain([4000]);
    let files: Vec<PathBuf> = (0..)
        .zip(steps)
        .map(|(seed, steps)| {
            let snapshot = random::snapshot(seed, steps);
            assert_eq!(snapshot.check(), Ok(()));
            let path = directory.0.join(format!("{seed}.pickle"));
            let json = json::snapshot(&snapshot, &mut random::Described::default());
            fs::write(format!("{}.json", path.display()), json).unwrap();
            fs::write(&path, pickled(&snapshot, &mut random::Described::default())).unwrap();
            path
        })
        .collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    assert_eq!(python::expect(&["-c", COMPARE], &files), format!("{}\n", files.len()));
}

/// The text of the golden file is the snapshot as Python's `pprint` prints it. After an intended
/// change: `UPDATE_GOLDEN=1 cargo test -p cachealloc-history golden`.
#[test]
fn golden_file() {
    if lacks("python3") {
        return;
    }
    let mut snapshot = soundness::small();
    snapshot.settings.more.push(("mode".into(), "ordered".into()));
    snapshot.segments[0].stack = StackId(1);
    snapshot.segments[0].blocks[0].stack = StackId(2);
    let entries = &mut snapshot.devices[0].entries;
    entries[0].stack = StackId(1);
    entries[1].stack = StackId(2);
    entries[3].stack = StackId(2);
    entries[4].stack = StackId(3);
    assert_eq!(snapshot.check(), Ok(()));

    let directory = Directory::new("golden");
    let path = directory.0.join("golden.pickle");
    fs::write(&path, pickled(&snapshot, &mut random::Described::default())).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/history/golden.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let printed = python::expect(&["-c", PRINT], &[&path]);
        fs::write(&golden, printed).unwrap();
    }
    python::expect(&["-c", COMPARE_GOLDEN], &[&path, &golden]);
}

const PRINT: &str = "
import pickle, pprint, sys
pprint.pprint(pickle.load(open(sys.argv[1], 'rb')), width=100, sort_dicts=False)
";

/// Compares values, types and the order of keys, independently of how this Python would print them.
const COMPARE_GOLDEN: &str = "
import ast, pickle, sys
found = pickle.load(open(sys.argv[1], 'rb'))
golden = ast.literal_eval(open(sys.argv[2], encoding='utf-8').read())
assert repr(found) == repr(golden), repr(found)
";

/// serde-pickle rejects shared lists and dicts, so nothing is shared here.
#[test]
fn another_reader_reads_the_same() {
    let mut snapshot = soundness::small();
    snapshot.devices[0].entries[0].stack = StackId(7);
    let file = pickled(
        &snapshot,
        &mut OneFrame(Frame { name: "näme".into(), filename: "f".into(), line: u64::MAX }),
    );
    let read = value_from_slice(&file, DeOptions::new()).unwrap();
    let segments = list(get(&read, "segments"));
    assert_eq!(segments.len(), 3);
    assert_eq!(get(&segments[0], "allocated_size"), &Value::I64(1024));
    assert_eq!(get(&segments[0], "requested_size"), &Value::I64(1000));
    assert_eq!(get(&segments[1], "is_expandable"), &Value::Bool(true));
    let pool = Value::Tuple(vec![Value::I64(0), Value::I64(0)]);
    assert_eq!(get(&segments[1], "segment_pool_id"), &pool);
    let traces = list(get(&read, "device_traces"));
    let entries = list(&traces[0]);
    let frame = &list(get(&entries[0], "frames"))[0];
    assert_eq!(get(frame, "name"), &Value::String("näme".into()));
    let line = get(frame, "line").to_string();
    assert_eq!(line, u64::MAX.to_string());
    let settings = get(&read, "allocator_settings");
    assert_eq!(get(settings, "garbage_collection_threshold"), &Value::F64(0.0));
    assert_eq!(get(settings, "max_split_size"), &Value::I64(-1));
}

#[test]
fn a_free_is_two_entries() {
    let file = pickled(&soundness::small(), &mut ());
    let read = value_from_slice(&file, DeOptions::new()).unwrap();
    let traces = list(get(&read, "device_traces"));
    let text = |entry: &Value| match get(entry, "action") {
        Value::String(action) => action.clone(),
        other => panic!("{other}"),
    };
    let actions: Vec<String> = list(&traces[0]).iter().map(text).collect();
    let expected = ["segment_alloc", "alloc", "segment_map", "alloc"];
    assert_eq!(actions[..4], expected);
    assert_eq!(actions[4..], ["free_requested", "free_completed", "oom"]);
    for entry in list(&traces[0]) {
        let Value::Dict(entry) = entry else { panic!() };
        let has = |key: &str| entry.contains_key(&HashableValue::String(key.into()));
        assert!(!has("frames") && !has("category"));
        assert_eq!(has("device_free"), !has("addr"));
    }
}

/// The viewer shows nothing if there are categories and none is `unknown`.
#[test]
fn one_category_is_unknown() {
    let mut snapshot = soundness::small();
    for entry in &mut snapshot.devices[0].entries {
        entry.stack = StackId(1);
    }
    // The second device's entry has no category, so it is the `unknown` one.
    assert_eq!(categories(&snapshot), ["app", "app", "app", "app", "app", "app", "unknown"]);
    snapshot.devices[1].entries[0].stack = StackId(1);
    // Without such an entry, it is one that the viewer does not draw: a mapping, or the free of a
    // block whose allocation is in the file, which has the block's colour.
    let all = ["app", "app", "unknown", "app", "app", "app", "app"];
    assert_eq!(categories(&snapshot), all);
    let entries = &mut snapshot.devices[0].entries;
    let is = |action| move |entry: &Entry| entry.action == action;
    entries.retain(|entry| !is(Action::SegmentMap)(entry));
    let all = ["app", "app", "app", "unknown", "app", "app"];
    assert_eq!(categories(&snapshot), all);
    let entries = &mut snapshot.devices[0].entries;
    let free = entries.iter().find(|entry| is(Action::Free)(entry)).copied();
    // The allocation of this block is not in the file, so the viewer would show `unknown`.
    entries.retain(|entry| !is(Action::Free)(entry));
    entries.insert(0, Entry { address: 1, ..free.unwrap() });
    let all = ["app", "unknown", "app", "app", "app", "app"];
    assert_eq!(categories(&snapshot), all, "a segment, of a timeline that few use");
    snapshot.devices[0].entries.retain(|entry| !is(Action::SegmentAlloc)(entry));
    snapshot.devices[1].entries.clear();
    assert!(categories(&snapshot).is_empty(), "better none than a false one");
    // Without categories, none is written: blocks keep their own colours.
    for entry in snapshot.devices.iter_mut().flat_map(|device| &mut device.entries) {
        entry.stack = StackId(4);
    }
    assert!(categories(&snapshot).is_empty());
}

/// A file has the entries of the rings and no others, with a free counted as two.
#[test]
fn no_entry_is_added() {
    for stack in [StackId::NONE, StackId(1), StackId(4)] {
        let mut snapshot = soundness::small();
        let all = snapshot.devices.iter_mut().flat_map(|device| &mut device.entries);
        all.for_each(|entry| entry.stack = stack);
        assert_eq!(traces(&snapshot), [7, 1]);
    }
}

/// The viewer fails if it finds neither a segment nor an entry of any device.
#[test]
fn snapshot_of_nothing_has_an_entry_of_its_own() {
    let mut snapshot = Snapshot::default();
    assert_eq!(traces(&snapshot), [1]);
    snapshot.devices = vec![Device::default(), Device::default()];
    assert_eq!(traces(&snapshot), [1]);
    snapshot.segments = soundness::small().segments;
    assert_eq!(traces(&snapshot), [0, 0]);
}

/// Number of entries of each device.
fn traces(snapshot: &Snapshot) -> Vec<usize> {
    let read = value_from_slice(&pickled(snapshot, &mut OnlyCategories), DeOptions::new()).unwrap();
    list(get(&read, "device_traces")).iter().map(|entries| list(entries).len()).collect()
}

/// If there is any category, the viewer shows blocks without an entry (as with `record:state`) as
/// `unknown`. Without categories they keep their own colours, which is better.
#[test]
fn no_category_where_only_live_blocks_were_recorded() {
    let mut snapshot = soundness::small();
    for entry in snapshot.devices.iter_mut().flat_map(|device| &mut device.entries) {
        entry.stack = StackId(1);
    }
    assert!(!categories(&snapshot).is_empty());
    // A recording that began later also has a history.
    for device in &mut snapshot.devices {
        device.recorded_from_start = false;
    }
    assert!(!categories(&snapshot).is_empty());
    for device in &mut snapshot.devices {
        device.entries.drain(..device.entries.len().saturating_sub(1));
    }
    assert!(categories(&snapshot).is_empty());
}

struct OnlyCategories;

impl Describe for OnlyCategories {
    fn frames(&mut self, _: StackId) -> Vec<Arc<Frame>> {
        Vec::new()
    }
    fn category(&mut self, stack: StackId) -> String {
        if stack == StackId(1) { "app".into() } else { String::new() }
    }
}

fn categories(snapshot: &Snapshot) -> Vec<String> {
    let read = value_from_slice(&pickled(snapshot, &mut OnlyCategories), DeOptions::new()).unwrap();
    let entries = list(get(&read, "device_traces")).iter().flat_map(list);
    let category = |entry: &Value| match entry {
        Value::Dict(entry) => entry.get(&HashableValue::String("category".into())).cloned(),
        other => panic!("{other}"),
    };
    entries.filter_map(category).map(|category| category.to_string().replace('"', "")).collect()
}

#[test]
fn long_names_are_cut_between_letters() {
    let mut snapshot = soundness::small();
    snapshot.devices[0].entries[0].stack = StackId(7);
    for name in ["x".repeat(5000), "é".repeat(600), "漢".repeat(342), "x".repeat(NAME_BYTES_MAX)]
    {
        let frame = Frame { name: name.clone(), filename: name.clone(), line: 1 };
        let read = value_from_slice(&pickled(&snapshot, &mut OneFrame(frame)), DeOptions::new());
        let read = read.unwrap();
        let entries = &list(get(&read, "device_traces"))[0];
        let frame = &list(get(&list(entries)[0], "frames"))[0];
        let Value::String(found) = get(frame, "name") else { panic!() };
        assert!(found.len() <= NAME_BYTES_MAX);
        let is_cut = name.len() > NAME_BYTES_MAX;
        assert_eq!(found.ends_with("..."), is_cut);
        assert!(name.starts_with(found.trim_end_matches('.')));
        assert!(found.len() > NAME_BYTES_MAX - 8);
    }
    let frame = Frame::from_bytes(b"a\xff\xfeb", &[b'/'; 4000], 3);
    assert_eq!(frame.name, "a\u{fffd}\u{fffd}b");
    assert_eq!(frame.filename.len(), NAME_BYTES_MAX);
}

#[test]
fn output_errors_are_returned() {
    let snapshot = random::snapshot(1, 50);
    let whole = pickled(&snapshot, &mut random::Described::default());
    for length in (0..whole.len()).step_by(97) {
        let mut space = vec![0; length];
        let output = &mut &mut space[..];
        let result = write_snapshot(&snapshot, &mut random::Described::default(), output);
        assert!(result.is_err(), "{length}");
    }
}

/// A stack is described once, however often it occurs.
#[test]
fn each_stack_is_described_once() {
    struct Counted(Vec<StackId>);
    impl Describe for Counted {
        fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
            self.0.push(stack);
            random::Described::default().frames(stack)
        }
        fn category(&mut self, _: StackId) -> String {
            String::new()
        }
    }
    let mut counted = Counted(Vec::new());
    pickled(&random::snapshot(3, 2000), &mut counted);
    let asked = counted.0.len();
    counted.0.sort();
    counted.0.dedup();
    assert_eq!(counted.0.len(), asked);
    assert_eq!(asked as u64, random::STACKS_COUNT - 1);
}

#[test]
fn clocks_keep_the_order() {
    let clock = cachealloc_history::Clock { time_ns: 1500, epoch_us: 10 };
    let times = [0, 499, 500, 1499, 1500, 2499, 2500, u64::MAX].map(|time| clock.epoch_us_of(time));
    assert_eq!(times, [8, 8, 9, 9, 10, 10, 11, 18_446_744_073_709_560]);
    let early = cachealloc_history::Clock { time_ns: u64::MAX, epoch_us: 0 };
    assert_eq!(early.epoch_us_of(0), 0);
}

pub fn pickled(snapshot: &Snapshot, describe: &mut dyn Describe) -> Vec<u8> {
    let mut file = Vec::new();
    write_snapshot(snapshot, describe, &mut file).unwrap();
    file
}

struct OneFrame(Frame);

impl Describe for OneFrame {
    fn frames(&mut self, _: StackId) -> Vec<Arc<Frame>> {
        vec![Arc::new(self.0.clone())]
    }

    fn category(&mut self, _: StackId) -> String {
        String::new()
    }
}

pub fn get<'a>(value: &'a Value, key: &str) -> &'a Value {
    let Value::Dict(dict) = value else { panic!("{value} is no dict") };
    &dict[&HashableValue::String(key.into())]
}

pub fn list(value: &Value) -> &[Value] {
    let Value::List(list) = value else { panic!("{value} is no list") };
    list
}

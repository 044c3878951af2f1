//! Reading returns the data that was written: by our library, and by Python in all its ways.

use std::fs;

use cachealloc_analysis::model::{self, BlockState, Dropped, PoolId, Snapshot, StackId};
use cachealloc_history as history;
use cachealloc_history::Describe;

use crate::made::{self, Directory, random};
use crate::python;
use crate::skip::lacks;

/// Describes the contents of a snapshot, one line for each item.
fn lines(snapshot: &Snapshot) -> Vec<String> {
    let frames = |stack| {
        let frames = snapshot.frames_of(stack).map(|frame| {
            let text = |id| snapshot.texts.get(id);
            format!("{}@{}:{}", text(frame.name), text(frame.filename), frame.line)
        });
        frames.collect::<Vec<_>>().join(";")
    };
    let mut lines = Vec::new();
    for (ordinal, device) in snapshot.devices.iter().enumerate() {
        for segment in &device.segments {
            let model::Segment { address, bytes, stream, small, expandable, .. } = segment;
            let pool = snapshot.pools[segment.pool.0 as usize];
            let stack = frames(segment.stack);
            lines.push(format!(
                "{ordinal} {address:x} {bytes} {stream} {small} {pool:?} {expandable} {stack}"
            ));
            for block in &segment.blocks {
                let model::Block { address, bytes, requested_bytes, state, stack, category } =
                    *block;
                let (stack, category) = (frames(stack), snapshot.texts.get(category));
                lines.push(format!(
                    "  {address:x} {bytes} {requested_bytes} {state:?} {stack} {category}"
                ));
            }
        }
        for entry in &device.entries {
            let model::Entry { time_us, address, bytes, stream, action, .. } = entry;
            assert_eq!(entry.compile_context.0, 0);
            let is_around = |segment: &&model::Segment| {
                (segment.address..segment.address + segment.bytes).contains(&address)
            };
            let around = device.segments.iter().find(is_around);
            let is_its = around.is_some_and(|segment| segment.pool == entry.pool);
            assert!(entry.pool == PoolId::DEFAULT || is_its, "{entry:?}");
            let (stack, category) = (frames(entry.stack), snapshot.texts.get(entry.category));
            lines.push(format!(
                "{time_us} {action:?} {address:x} {bytes} {stream} {stack} {category}"
            ));
        }
    }
    lines
}

/// Describes the written snapshot in the same lines.
fn lines_of(snapshot: &history::Snapshot) -> Vec<String> {
    let mut described = random::Described::default();
    let mut frames = |stack: history::StackId| {
        let frames = if stack.is_none() { Vec::new() } else { described.frames(stack) }.into_iter();
        let texts = frames.map(|frame| format!("{}@{}:{}", frame.name, frame.filename, frame.line));
        texts.collect::<Vec<_>>().join(";")
    };
    let mut described = random::Described::default();
    let mut category = |stack: history::StackId| {
        if stack.is_none() { String::new() } else { described.category(stack) }
    };
    let mut lines = Vec::new();
    for (ordinal, device) in snapshot.devices.iter().enumerate() {
        for segment in snapshot.segments.iter().filter(|it| it.device as usize == ordinal) {
            let history::Segment { address, bytes, stream, kind, expandable, pool_id, .. } =
                segment;
            let small = *kind == history::PoolKind::Small;
            let stack = frames(segment.stack);
            lines.push(format!(
                "{ordinal} {address:x} {bytes} {stream} {small} {pool_id:?} {expandable} {stack}"
            ));
            for block in &segment.blocks {
                let history::Block { address, bytes, requested_bytes, state, stack } = *block;
                let state = match state {
                    history::BlockState::Allocated => BlockState::Allocated,
                    history::BlockState::Pending => BlockState::Pending,
                    history::BlockState::Free => BlockState::Free,
                };
                let (stack, category) = (frames(stack), category(stack));
                lines.push(format!(
                    "  {address:x} {bytes} {requested_bytes} {state:?} {stack} {category}"
                ));
            }
        }
        let mut pending = None;
        for entry in &device.entries {
            let history::Entry { address, bytes, stream, stack, .. } = *entry;
            let time_us = snapshot.clock.epoch_us_of(entry.time_ns);
            let action = match entry.action {
                // The file cannot distinguish the two.
                history::Action::FreeCompleted if pending == Some(address) => {
                    let requested = lines.pop().expect("the request is just before");
                    lines.push(requested.replace("FreeRequested", "Free"));
                    pending = None;
                    continue;
                }
                history::Action::OutOfMemory => "OutOfMemory".to_string(),
                action => format!("{action:?}"),
            };
            let is_request = entry.action == history::Action::FreeRequested;
            pending = is_request.then_some(address);
            let completed = entry.action == history::Action::FreeCompleted;
            let category = if completed { String::new() } else { category(stack) };
            let stack = frames(stack);
            lines.push(format!(
                "{time_us} {action} {address:x} {bytes} {stream} {stack} {category}"
            ));
        }
    }
    lines
}

#[test]
fn snapshots_of_the_library() {
    for seed in 0..200 {
        let written = made::history(seed, seed % 50 * 8);
        let read = made::read(&made::pickled(&written));
        assert_eq!(lines(&read), lines_of(&written), "seed {seed}");
        assert_eq!(read.devices.len(), written.devices.len());
        assert_eq!(read.settings.dropped, Dropped::Count(written.dropped_count()));
        assert_eq!(read.settings.ours, written.settings.more);
        assert_eq!(read.setting("max_split_size").is_some_and(|size| size != "-1"), {
            written.settings.split_bytes_max.is_some()
        });
        assert!(read.stacks.len() <= random::STACKS_COUNT as usize + 1);
        assert!(read.stacks.get(StackId::NONE).is_empty());
    }
}

/// The format of PyTorch before 2023: a list of segments, blocks without addresses, with a
/// `history`.
#[test]
fn snapshots_of_old_pytorch() {
    if lacks("python3") {
        return;
    }
    const WRITE: &str = "
import pickle, sys
frame = dict(name='f', filename='a.py', line=3)
history = [dict(addr=4096, real_size=1000, frames=[frame]), dict(addr=4096, real_size=5, frames=[])]
blocks = [dict(size=1024, state='active_allocated', history=history),
          dict(size=512, state='active_awaiting_free'), dict(size=512, state='inactive')]
pickle.dump([dict(device=1, address=4096, total_size=2048, stream=-1, segment_type='small',
                  blocks=blocks)], open(sys.argv[1], 'wb'), 3)
";
    let directory = Directory::new("old");
    let path = directory.0.join("file");
    python::expect(&["-c", WRITE], &[&path]);
    let snapshot = made::read(&fs::read(&path).expect("Python wrote it"));
    assert_eq!(
        lines(&snapshot),
        [
            "1 1000 2048 18446744073709551615 true (0, 0) false ",
            "  1000 1024 1000 Allocated f@a.py:3 ",
            "  1400 512 512 Pending  ",
            "  1600 512 512 Free  ",
        ]
    );
}

/// The format of PyTorch's Python side: with every protocol, with nothing shared, and after JSON,
/// where tuples have become lists.
#[test]
fn pickles_of_python() {
    if lacks("python3") {
        return;
    }
    const REWRITE: &str = r#"
import json, pickle, sys
for path in sys.argv[1:]:
    snapshot = pickle.load(open(path, "rb"))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        pickle.dump(snapshot, open(f"{path}.{protocol}", "wb"), protocol)
    plain = json.loads(json.dumps(snapshot))
    pickle.dump(plain, open(f"{path}.plain", "wb"), 4)
    pickler = pickle.Pickler(open(f"{path}.fast", "wb"), 4)
    pickler.fast = True
    pickler.dump(plain)
"#;
    let directory = Directory::new("python");
    let paths: Vec<_> = (0..20).map(|seed| directory.0.join(seed.to_string())).collect();
    let mut expected = Vec::new();
    for (seed, path) in (0..).zip(&paths) {
        let written = made::history(seed, seed * 40);
        fs::write(path, made::pickled(&written)).expect("a file");
        expected.push(lines_of(&written));
    }
    let files: Vec<_> = paths.iter().map(|path| path.as_path()).collect();
    python::expect(&["-c", REWRITE], &files);
    for (path, expected) in paths.iter().zip(&expected) {
        for way in ["2", "3", "4", "5", "plain", "fast"] {
            let file = fs::read(format!("{}.{way}", path.display())).expect("Python wrote it");
            assert_eq!(&lines(&made::read(&file)), expected, "{} {way}", path.display());
        }
    }
}

/// The two entries of a free are merged as they are read, but only where they follow each other in
/// one list, however else the file uses them.
#[test]
fn frees_are_merged_only_within_a_list() {
    if lacks("python3") {
        return;
    }
    const WRITE: &str = "
import pickle, sys
def entry(action, addr=4096): return dict(action=action, addr=addr, size=512, stream=0, time_us=5)
alloc, asked, done = entry('alloc'), entry('free_requested'), entry('free_completed')
many = [dict(each) for _ in range(1700) for each in (alloc, asked, done)]
traces = [
    dict(device_traces=[[alloc, asked], [done]]),
    dict(kept=[alloc], device_traces=[[alloc, asked, done], [done, asked]]),
    dict(kept=[done], device_traces=[[alloc, asked, done]]),
    dict(kept=[asked, done], device_traces=[[done], [asked, alloc]]),
    dict(device_traces=[[asked, entry('free_completed', 8192), done]]),
    dict(device_traces=[many], host_traces=[[asked, done]]),
]
for number, trace in enumerate(traces):
    for protocol in (2, 4):
        file = pickle.dumps(dict(segments=[], **trace), protocol)
        open(f'{sys.argv[1]}{number}.{protocol}', 'wb').write(file)
";
    let directory = Directory::new("merged");
    let path = directory.0.join("file");
    python::expect(&["-c", WRITE], &[&path]);
    let many = "Alloc Free ".repeat(1700);
    let wanted = [
        "Alloc FreeRequested | FreeCompleted",
        "Alloc Free | FreeCompleted FreeRequested",
        "Alloc Free",
        "FreeCompleted | FreeRequested Alloc",
        "FreeRequested FreeCompleted FreeCompleted",
        many.trim(),
    ];
    for (number, wanted) in wanted.iter().enumerate() {
        for protocol in [2, 4] {
            let file = fs::read(format!("{}{number}.{protocol}", path.display())).unwrap();
            let actions = |device: &model::Device| {
                let actions = device.entries.iter().map(|entry| format!("{:?}", entry.action));
                actions.collect::<Vec<_>>().join(" ")
            };
            let read = made::read(&file);
            let found: Vec<_> = read.devices.iter().map(actions).collect();
            assert_eq!(found.join(" | "), *wanted, "{number}, protocol {protocol}");
            let host = if number == 5 { "Free" } else { "" };
            assert_eq!(actions(&read.host), host);
        }
    }
}

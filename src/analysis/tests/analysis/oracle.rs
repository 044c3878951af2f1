//! Checks our reader against serde-pickle as far as that goes: it reads files in which nothing is
//! shared. It refuses or loses shared objects, so it cannot be our reader.

use std::fs;

use serde_pickle::{DeOptions, HashableValue, Value};

use crate::made::{self, Directory};
use crate::python;
use crate::skip::lacks;

/// Returns the snapshot as Python writes it without a memo.
fn unshared(snapshot: &[u8]) -> Vec<u8> {
    const REWRITE: &str = "import json, pickle, sys
snapshot = json.loads(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))
pickler = pickle.Pickler(open(sys.argv[1] + '.plain', 'wb'), 4)
pickler.fast = True
pickler.dump(snapshot)
";
    let directory = Directory::new("unshared");
    let path = directory.0.join("file");
    fs::write(&path, snapshot).expect("a file");
    python::expect(&["-c", REWRITE], &[&path]);
    fs::read(directory.0.join("file.plain")).expect("Python wrote it")
}

fn get<'a>(value: &'a Value, key: &str) -> &'a Value {
    let Value::Dict(dict) = value else { panic!("{value:?} is no dict") };
    &dict[&HashableValue::String(key.into())]
}

fn list(value: &Value) -> &[Value] {
    let Value::List(list) = value else { panic!("{value:?} is no list") };
    list
}

fn number(value: &Value) -> u64 {
    let Value::I64(number) = value else { panic!("{value:?} is no number") };
    *number as u64
}

#[test]
fn both_read_the_same() {
    if lacks("python3") {
        return;
    }
    let file = unshared(&made::pickled(&made::history(7, 200)));
    let theirs = serde_pickle::value_from_slice(&file, DeOptions::new()).expect("it can be read");
    let snapshot = made::read(&file);
    let devices = list(get(&theirs, "device_traces"));
    assert_eq!(devices.len(), snapshot.devices.len());
    let mut frames_count = 0;
    for (theirs, ours) in devices.iter().zip(&snapshot.devices) {
        // A free is two entries in the file.
        let is_first =
            |entry: &&Value| get(entry, "action") != &Value::String("free_completed".into());
        let theirs: Vec<&Value> = list(theirs).iter().filter(is_first).collect();
        let completed = cachealloc_analysis::model::Action::FreeCompleted;
        let mine = ours.entries.iter().filter(|entry| entry.action != completed);
        let mine: Vec<_> = mine.collect();
        assert_eq!(theirs.len(), mine.len());
        for (theirs, mine) in theirs.iter().zip(mine) {
            assert_eq!(number(get(theirs, "size")), mine.bytes);
            assert_eq!(number(get(theirs, "time_us")), mine.time_us);
            assert_eq!(number(get(theirs, "stream")), mine.stream);
            let Value::Dict(dict) = theirs else { panic!("an entry is a dict") };
            let frames = dict.get(&HashableValue::String("frames".into())).map_or(&[][..], list);
            let lines = frames.iter().map(|frame| number(get(frame, "line")));
            let mine = snapshot.frames_of(mine.stack).map(|frame| frame.line);
            assert_eq!(lines.collect::<Vec<_>>(), mine.collect::<Vec<_>>());
            frames_count += frames.len();
        }
    }
    assert!(frames_count > 100);
}

/// Shows why serde-pickle is not our reader.
#[test]
fn serde_pickle_refuses_shared_objects() {
    let file = made::pickled(&made::history(7, 200));
    assert!(serde_pickle::value_from_slice(&file, DeOptions::new()).is_err());
    made::read(&file);
}

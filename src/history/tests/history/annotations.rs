//! Ranges become annotations: when the program went through each, according to the entries in it.

use cachealloc_history::{Action, Entry, Snapshot};
use serde_pickle::{DeOptions, value_from_slice};

use crate::readers::{get, list, pickled};

/// Entries a microsecond apart, each with its range and the depth from which it was entered again.
fn snapshot(entries: &[(u16, u8)]) -> Snapshot {
    let ranges = ["", "step", "step/forward", "load"].map(String::from).to_vec();
    let mut snapshot = Snapshot { ranges, ..Snapshot::default() };
    snapshot.devices.resize_with(2, Default::default);
    let entry = |(index, &(range, entered)): (u64, &(u16, u8))| Entry {
        time_ns: index * 1000,
        action: Action::OutOfMemory,
        range,
        entered,
        ..Entry::default()
    };
    snapshot.devices[1].entries = (0..).zip(entries).map(entry).collect();
    snapshot
}

#[track_caller]
fn annotated(entries: &[(u16, u8)], wanted: &[&str]) {
    let file = pickled(&snapshot(entries), &mut ());
    let read = value_from_slice(&file, DeOptions::new()).expect("a pickle");
    let text = |annotation: &_| {
        let of = |key: &str| get(annotation, key).to_string().replace('"', "");
        assert_eq!(of("device"), "1");
        format!("{} {} {}", of("time_us"), of("stage"), of("name"))
    };
    let found: Vec<String> = list(get(&read, "external_annotations")).iter().map(text).collect();
    let found: Vec<&str> = found.iter().map(|line| line.trim_matches('\'')).collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_range_is_passed_from_its_first_entry_to_its_last() {
    annotated(&[(0, 0), (0, 0)], &[]);
    annotated(
        &[(2, 1), (1, 0), (0, 0), (2, 2), (2, 1), (3, 1)],
        &[
            "0 START step",
            "0 START step/forward",
            "0 END step/forward",
            "3 START step/forward",
            "3 END step/forward",
            "3 END step",
            "4 START step",
            "4 START step/forward",
            "4 END step/forward",
            "4 END step",
            "5 START load",
            "5 END load",
        ],
    );
    // Ranges entered before the history begins.
    annotated(&[(3, 0), (3, 0)], &["0 START load", "1 END load"]);
}

//! Number of times a program went through its ranges.

use cachealloc_analysis::model::{Action, Device, Entries, Entry, StackId, TextId, Texts};
use cachealloc_analysis::{PASS_DEPTH_MAX, Passes};

/// Returns name, begin and end of each pass. Each entry gives its ranges and how many of them were
/// newly entered.
fn passes(entries: &[(&str, u8)]) -> Vec<(String, u32, u32)> {
    let mut texts = Texts::default();
    let entry = |&(said, entered): &(&str, u8)| Entry {
        time_us: 0,
        address: 0,
        bytes: 0,
        stream: 0,
        stack: StackId::NONE,
        category: TextId::EMPTY,
        compile_context: TextId::EMPTY,
        user_metadata: texts.add(said),
        pool: Default::default(),
        action: if said == "a message" { Action::Annotate } else { Action::Alloc },
        entered,
    };
    let entries: Entries = entries.iter().map(entry).collect();
    let passes = Passes::of(&Device { entries, ..Device::default() }, &texts);
    for pass in &passes.all {
        let range = &passes.ranges[pass.range as usize];
        assert_eq!(range.matches('/').count(), usize::from(pass.depth));
    }
    let all = passes.all.iter();
    all.map(|it| (passes.ranges[it.range as usize].clone(), it.begin, it.end)).collect()
}

fn is(wanted: &[(&str, u32, u32)]) -> Vec<(String, u32, u32)> {
    wanted.iter().map(|&(range, begin, end)| (range.to_string(), begin, end)).collect()
}

#[test]
fn each_time_a_range_is_entered() {
    // Two steps without anything in between; another thread's entries are between those of the
    // second.
    let found = passes(&[
        ("", 0),
        ("step/forward", 1),
        ("step/forward", 0),
        ("step/backward", 2),
        ("step/forward", 1),
        ("worker", 1),
        ("step", 0),
        ("step/forward", 2),
        ("a message", 0),
    ]);
    let wanted = [
        ("step", 1, 4),
        ("step/forward", 1, 3),
        ("step/backward", 3, 4),
        ("step", 4, 8),
        ("step/forward", 4, 5),
        ("worker", 5, 6),
        ("step/forward", 7, 8),
    ];
    assert_eq!(found, is(&wanted));
}

/// A history that begins in the midst of a range, and counts larger than the text has ranges.
#[test]
fn incomplete_ranges_are_taken_as_recorded() {
    let found = passes(&[("step/a", 0), ("step", 3), ("step", 200), ("step", 1)]);
    assert_eq!(found, is(&[("step", 0, 3), ("step/a", 0, 1), ("step", 3, 4)]));
    let deep = ["x"; PASS_DEPTH_MAX + 3].join("/");
    assert_eq!(passes(&[(&deep, 1)]).len(), PASS_DEPTH_MAX);
}

/// PyTorch's files do not record when a range was entered.
#[test]
fn runs_of_entries() {
    let found = passes(&[("epoch/a", 0), ("epoch/b", 0), ("", 0), ("epoch/b", 0), ("epoch/b", 0)]);
    let wanted =
        [("epoch", 0, 2), ("epoch/a", 0, 1), ("epoch/b", 1, 2), ("epoch", 3, 5), ("epoch/b", 3, 5)];
    assert_eq!(found, is(&wanted));
}

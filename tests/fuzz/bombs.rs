//! Small files that expand to large data: one object, referenced many times.

use crate::pickle::{Pickle, Place};
use crate::work::within_bounds;

const LONG: usize = 40_000;

fn long(pickle: &mut Pickle, letter: &str, length: usize) -> Place {
    pickle.text(&letter.repeat(length));
    pickle.keep_only()
}

/// Checks that a file is rejected with this reason.
#[track_caller]
fn refused(name: &str, file: &[u8], says: &str) {
    let said = within_bounds(name, file).expect_err(name);
    assert!(said.contains(says) && !said.contains('\n') && said.len() < 300, "{name}: {said}");
}

const AGAIN: &str = "it repeats long texts";

/// Memo places far apart: a reader might allocate all places in between.
#[test]
fn gaps_in_the_memo() {
    let mut pickle = Pickle::new();
    for number in 0..16_000u32 {
        pickle.raw(b"Nr").raw(&(number * 4096).to_le_bytes()).raw(b"0");
    }
    refused("gaps", pickle.raw(b".").bytes.as_slice(), "out of order");
}

#[test]
fn one_long_text_for_all_settings() {
    let mut pickle = Pickle::new();
    let text = long(&mut pickle, "s", LONG);
    for inside in ["", "cachealloc"] {
        let pickle = pickle.clone();
        let file = pickle.snapshot(
            |_| {},
            |pickle| {
                pickle.text("allocator_settings").raw(b"}(");
                if !inside.is_empty() {
                    pickle.text(inside).raw(b"}(");
                }
                for number in 0..10_000 {
                    pickle.number(number).again(text);
                }
                pickle.raw(if inside.is_empty() { b"u" } else { b"uu" });
            },
        );
        refused("settings", &file, AGAIN);
    }
}

/// Dicts of many long texts in place of a text: the same dict, and others.
#[test]
fn dicts_as_metadata() {
    for same in [true, false] {
        let mut pickle = Pickle::new();
        let text = long(&mut pickle, "m", LONG);
        let keys = pickle.keys();
        let dict = |pickle: &mut Pickle, number: u32| {
            pickle.raw(b"}(").text("number").number(number);
            for key in 0..63 {
                pickle.number(key).again(text);
            }
            pickle.raw(b"u");
        };
        dict(&mut pickle, 0);
        let shared = pickle.keep_only();
        let count = if same { 20_000 } else { 2_000 };
        let file = pickle.snapshot(
            |pickle| {
                for number in 0..count {
                    pickle.entry(&keys, number, |pickle| {
                        pickle.again(keys.metadata);
                        if same { _ = pickle.again(shared) } else { dict(pickle, number) }
                    });
                }
            },
            |_| {},
        );
        refused("metadata", &file, AGAIN);
    }
}

#[test]
fn one_long_name_for_all_frames() {
    for (length, count) in [(LONG, 3_000), (600_000, 15_000)] {
        let mut pickle = Pickle::new();
        let (name, file) = (long(&mut pickle, "n", length), long(&mut pickle, "/f", length / 2));
        let keys = pickle.keys();
        pickle.raw(b"](");
        (0..count).for_each(|line| _ = pickle.frame(name, file, line));
        pickle.raw(b"e");
        let stack = pickle.keep_only();
        let entry = |pickle: &mut Pickle| {
            pickle.entry(&keys, 1, |pickle| _ = pickle.again(keys.frames).again(stack));
        };
        refused("frames", &pickle.snapshot(entry, |_| {}), AGAIN);
    }
}

#[test]
fn one_long_text_for_all_entries() {
    let mut pickle = Pickle::new();
    let text = long(&mut pickle, "c", LONG);
    let keys = pickle.keys();
    for key in [keys.category, keys.metadata] {
        let pickle = pickle.clone();
        let file = pickle.snapshot(
            |pickle| {
                for number in 0..10_000 {
                    pickle.entry(&keys, number, |pickle| _ = pickle.again(key).again(text));
                }
            },
            |_| {},
        );
        refused("entries", &file, AGAIN);
    }
    let file = pickle.clone().snapshot(
        |_| {},
        |pickle| {
            pickle.text("external_annotations").raw(b"](");
            for _ in 0..10_000 {
                pickle.raw(b"}(").text("name").again(text).raw(b"u");
            }
            pickle.raw(b"e");
        },
    );
    refused("annotations", &file, AGAIN);
}

/// One long stack under many categories: it is processed once, and written as often as the format
/// requires, or not at all.
#[test]
fn one_long_stack_for_many_categories() {
    let mut pickle = Pickle::new();
    let (name, file) = (long(&mut pickle, "n", 30), long(&mut pickle, "/f.py", 1));
    let keys = pickle.keys();
    pickle.frame(name, file, 1);
    let frame = pickle.keep_only();
    pickle.raw(b"](");
    (0..300_000).for_each(|_| _ = pickle.again(frame));
    pickle.raw(b"e");
    let stack = pickle.keep_only();
    let file = pickle.snapshot(
        |pickle| {
            for number in 0..20_000u32 {
                pickle.entry(&keys, number, |pickle| {
                    pickle.again(keys.frames).again(stack).again(keys.category);
                    pickle.text(&format!("c{number}"));
                });
            }
        },
        |_| {},
    );
    refused("categories", &file, "would exceed");
}

/// One stack on a thousand devices: a line for each.
#[test]
fn one_long_stack_for_many_devices() {
    let mut pickle = Pickle::new();
    let (name, file) = (long(&mut pickle, "n", 78), long(&mut pickle, "/f", 100));
    let keys = pickle.keys();
    pickle.frame(name, file, 1);
    let frame = pickle.keep_only();
    pickle.raw(b"](");
    (0..500_000).for_each(|_| _ = pickle.again(frame));
    pickle.raw(b"e");
    let stack = pickle.keep_only();
    pickle.raw(b"}(").text("segments").raw(b"]").text("device_traces").raw(b"](");
    for _ in 0..1024 {
        pickle.raw(b"](");
        pickle.entry(&keys, 1, |pickle| _ = pickle.again(keys.frames).again(stack));
        pickle.raw(b"e");
    }
    refused("devices", pickle.raw(b"eu.").bytes.as_slice(), "would exceed");
}

/// Many short stacks with long paths, some of which are in each call site's text.
#[test]
fn long_paths_for_many_stacks() {
    let mut pickle = Pickle::new();
    let name = long(&mut pickle, "n", 30);
    let keys = pickle.keys();
    let frames: Vec<Place> = (0..30)
        .map(|number| {
            pickle.text(&format!("/{}{number}.py", "p".repeat(20_000)));
            let file = pickle.keep_only();
            pickle.frame(name, file, number);
            pickle.keep_only()
        })
        .collect();
    let file = pickle.snapshot(
        |pickle| {
            for number in 0..8_000u32 {
                pickle.entry(&keys, number, |pickle| {
                    pickle.again(keys.frames).raw(b"](");
                    for digit in 0..4 {
                        pickle.again(frames[(number / 30u32.pow(digit) % 30) as usize]);
                    }
                    pickle.raw(b"e");
                });
            }
        },
        |_| {},
    );
    assert_eq!(within_bounds("paths", &file), Ok(()));
}

/// The smallest possible objects, as many as possible.
#[test]
fn crowds() {
    let crowd = |what: &[u8], count: usize| {
        let mut pickle = Pickle::new();
        pickle.raw(b"](").raw(&what.repeat(count)).raw(b"e.");
        pickle.bytes
    };
    for what in [
        &b"N"[..],
        b"]\x94",
        b"}\x94",
        b"N\x85",
        b"NN\x86\x94",
        b"]\x940",
        b"(NNd",
        b"K\x01K\x02\x86",
        b"(",
        b"\x8c\x01\xff",
    ] {
        let _ = within_bounds(&format!("{what:?}"), &crowd(what, 1_000_000 / what.len()));
    }
    // The same entry, the same block, the same segment, everywhere.
    let mut pickle = Pickle::new();
    let keys = pickle.keys();
    pickle.entry(&keys, 4096, |_| {});
    let entry = pickle.keep_only();
    let file = pickle.snapshot(|pickle| (0..400_000).for_each(|_| _ = pickle.again(entry)), |_| {});
    assert_eq!(within_bounds("entries", &file), Ok(()));
    let mut pickle = Pickle::new();
    pickle.raw(b"}(").text("size").number(512).text("state").text("active_allocated").raw(b"u");
    let block = pickle.keep_only();
    pickle.raw(b"](}(").text("blocks").raw(b"](");
    (0..400_000).for_each(|_| _ = pickle.again(block));
    pickle.raw(b"e").text("total_size").number(512).raw(b"ue.");
    assert_eq!(within_bounds("blocks", &pickle.bytes), Ok(()));
    let mut pickle = Pickle::new();
    pickle.raw(b"}(").text("blocks").raw(b"]").text("total_size").number(512).raw(b"u");
    let segment = pickle.keep_only();
    pickle.raw(b"](");
    (0..400_000).for_each(|_| _ = pickle.again(segment));
    pickle.raw(b"e.");
    assert_eq!(within_bounds("segments", &pickle.bytes), Ok(()));
}

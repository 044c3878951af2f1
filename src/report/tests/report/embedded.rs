//! The data of the page, checked against a readable file and against the analyses.

use std::fs;
use std::path::Path;

use cachealloc_analysis::Lifetimes;
use cachealloc_analysis::model::Action;
use serde_json::{Value, json};

use crate::made::{MIB, Made, small};
use crate::page::{columns, head, written};

/// `UPDATE_GOLDEN=1 cargo test -p cachealloc-report` writes the file.
#[test]
fn small_snapshot_as_in_the_file() {
    let page = written(&[small().input("small.pickle")]);
    let mut head = head(&page);
    head.as_object_mut().expect("an object").remove("columns");
    let lines = columns(&page).into_iter().map(|(name, column)| format!("{name}: {column}\n"));
    let found = format!("{head:#}\n{}", lines.collect::<String>());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/small.golden");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &found).expect("the sources are writable");
    }
    let wanted = fs::read_to_string(&path).expect("the golden file");
    assert_eq!(found, wanted, "UPDATE_GOLDEN=1 writes it");
}

/// Returns the live bytes at each of the page's moments, as the page adds them up.
fn alive(columns: &std::collections::BTreeMap<String, Value>) -> Vec<u64> {
    let numbers = |name: &str| -> Vec<u64> {
        let list = columns[&format!("track0.{name}")].as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number")).collect()
    };
    let mut sums = vec![0; numbers("time").len() + 1];
    let rows = numbers("from").into_iter().zip(numbers("life")).zip(numbers("bytes"));
    for ((from, life), bytes) in rows {
        let until = if life == 0 { sums.len() as u64 - 1 } else { from + life - 1 };
        (from..=until).for_each(|moment| sums[moment as usize] += bytes);
    }
    sums
}

#[test]
fn peak_and_end_are_those_of_the_analysis() {
    let made = small();
    let lifetimes = Lifetimes::of(&made.snapshot.devices[0]);
    assert_eq!((lifetimes.peak_bytes, lifetimes.end_bytes), (13 * MIB, 3 * MIB), "as it is made");
    let sums = alive(&columns(&written(&[made.input("small.pickle")])));
    assert_eq!(sums.iter().max(), Some(&lifetimes.peak_bytes));
    assert_eq!(sums.last(), Some(&lifetimes.end_bytes));
}

/// The free of the first block is missing: one entry ends it and begins the second.
#[test]
fn one_entry_that_ends_and_begins_is_two_events() {
    let mut made = Made::new();
    let stack = made.stack(&[("f", "a.c", 1)]);
    made.entry(Action::Alloc, 4096, 5, stack);
    made.entry(Action::Alloc, 4096, 7, stack);
    made.entry(Action::Free, 4096, 7, stack);
    let columns = columns(&written(&[made.input("two")]));
    assert_eq!(columns["track0.time"], json!([0, 10, 10, 20]));
    assert_eq!(alive(&columns), [0, 5, 0, 7, 0]);
}

/// The address is freed twice, so another block must have been there since the first free.
#[test]
fn ends_come_before_begins_at_the_same_time() {
    let mut made = Made::new();
    let stack = made.stack(&[("f", "a.c", 1)]);
    made.entry(Action::Alloc, 4096, 5, stack);
    made.entry(Action::Free, 4096, 5, stack);
    made.entry(Action::Free, 4096, 7, stack);
    let lifetimes = Lifetimes::of(&made.snapshot.devices[0]);
    let sums = alive(&columns(&written(&[made.input("twice")])));
    assert_eq!(sums, [0, 5, 0, 7, 0]);
    assert_eq!(sums.iter().max(), Some(&lifetimes.peak_bytes));
}

/// By what the page stacks blocks besides their stacks.
#[test]
fn ranges_pools_and_threads_of_blocks() {
    let columns = columns(&written(&[small().input("small.pickle")]));
    let texts = |name: &str| -> Vec<&str> {
        let numbers = columns[name].as_array().expect("a list").iter();
        let place = |number: &Value| number.as_u64().expect("a number") as usize;
        numbers.map(|number| columns["strings"][place(number)].as_str().expect("a text")).collect()
    };
    // The first row is the block from before the history: its segment tells the pool.
    assert_eq!(texts("track0.range"), ["", "load", "step/forward", "step"]);
    assert_eq!(texts("track0.pool"), ["1.0", "0.0", "0.0", "0.0"]);
    let named = texts("thread.name").into_iter().zip(texts("thread.file"));
    let named: Vec<_> = named.collect();
    assert!(named.contains(&("main", "/home/user/app.cu")), "{named:?}");
    assert_eq!(named.len(), 2, "both stacks begin alike, and a block has none: {named:?}");
}

#[test]
fn one_pool_for_all_blocks_is_written_once() {
    let mut made = Made::new();
    let stack = made.stack(&[("f", "a.c", 1)]);
    for address in 1..4 {
        made.keep(address << 20, 1, stack);
    }
    let columns = columns(&written(&[made.input("one")]));
    assert_eq!(columns["track0.pool"].as_array().map(Vec::len), Some(1));
    assert_eq!(columns["track0.stack"].as_array().map(Vec::len), Some(3));
}

#[test]
fn times_never_fall() {
    let mut made = Made::new();
    for address in 1..4 {
        made.keep(address << 20, 1, Default::default());
    }
    made.edit(|entries| entries[1].time_us -= 1_000_000);
    let columns = columns(&written(&[made.input("clock")]));
    assert_eq!(columns["track0.time"], json!([0, 0, 20]));
}

#[test]
fn snapshots_of_one_process_are_distinguished_from_ranks() {
    let of = |other: fn(&mut Made)| {
        let mut second = small();
        other(&mut second);
        let page = written(&[small().input("a"), second.input("b")]);
        head(&page)["same_process"] == json!(true)
    };
    assert!(of(|_| ()), "they have an entry in common");
    let later = |made: &mut Made| {
        made.edit(|entries| entries.iter_mut().for_each(|entry| entry.time_us += 1));
    };
    assert!(!of(later), "they have none in common");
    let page = written(&[small().input("a")]);
    assert_eq!(head(&page)["same_process"], json!(false), "there is but one");
}

#[test]
fn equal_stacks_of_two_files_are_one() {
    let one = columns(&written(&[small().input("a")]));
    let two = columns(&written(&[small().input("a"), small().input("b")]));
    assert_eq!(one["stack.node"], two["stack.node"]);
    assert_eq!(one["strings"], two["strings"]);
    assert_eq!(two["track0.stack"], two["track1.stack"]);
}

#[test]
fn empty_snapshot_makes_a_page() {
    let mut nothing = Made::new();
    nothing.snapshot.devices.clear();
    let page = written(&[nothing.input("nothing")]);
    assert_eq!(head(&page)["tracks"], json!([]));
}

/// The file's rows are shown whatever a library is called, and no table where a file has none.
#[test]
fn account_of_the_device_is_a_table() {
    let mut made = small();
    assert!(!written(&[small().input("a")]).contains("id=\"account\""));
    let texts = [
        ("0 in_use", "5242880"),
        ("0 cache_held", "1048576"),
        ("0 arrays lib<b>.so", "2097152"),
        ("-1 pinned app", "1048576"),
    ];
    let texts = texts.map(|(name, text)| (format!("memory {name}"), text.to_string()));
    made.snapshot.settings.ours.extend(texts);
    let page = written(&[made.input("a")]);
    for wanted in [
        "<a href=\"#account\">",
        "<td class=\"\">1.00 MiB</td><td class=\"\">20.00 %</td><td class=\"text narrow-hide\">counted</td>",
        "<td class=\"text narrow-hide\">lib&lt;b&gt;.so</td><td class=\"text\">driver: arrays</td>",
        "<td class=\"\">2.00 MiB</td><td class=\"\">40.00 %</td><td class=\"text narrow-hide\">difference</td>",
        "<p class=\"soft\">60.00 % is accounted for</p>",
        // No host row has a share, so that column is missing.
        "<caption>host</caption><tr><th class=\"\">Bytes</th><th class=\"text narrow-hide\">Known by</th>",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

/// PyTorch's number of a block counts the frees at its address. It is written where it differs from
/// the number of the rows before.
#[test]
fn versions_count_frees() {
    let mut made = Made::new();
    let stack = made.stack(&[("f", "a.c", 1)]);
    let other = made.stack(&[("g", "a.c", 2)]);
    made.entry(Action::Alloc, 4096, 5, stack);
    made.entry(Action::Free, 4096, 5, other);
    made.entry(Action::Alloc, 4096, 7, stack);
    // The free of this block is missing.
    made.entry(Action::Alloc, 4096, 8, stack);
    made.entry(Action::Free, 4096, 8, other);
    made.entry(Action::Alloc, 4096, 9, stack);
    made.entry(Action::Free, 4096, 9, other);
    let columns = columns(&written(&[made.input("versions")]));
    assert_eq!(columns["track0.version.row"], json!([2, 3]));
    assert_eq!(columns["track0.version.number"], json!([1, 2]));
    let stacks = |name: &str| -> Vec<u64> {
        let list = columns[&format!("track0.{name}")].as_array().expect("a list");
        list.iter().map(|it| it.as_u64().expect("a number")).collect()
    };
    let (own, freed_by) = (stacks("stack"), stacks("freed_by"));
    assert!(freed_by[0] != own[0] && freed_by[0] == freed_by[2], "{own:?}, {freed_by:?}");
}

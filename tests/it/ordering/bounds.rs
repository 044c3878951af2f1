//! Every wait that ends by a bound is a row of the table in section 12 of `docs/ordering.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cachealloc_core::policy::ROOM_TRIES_MAX;
use cachealloc_core::rules::Rule;
use cachealloc_tests::{Run, root};

use crate::ordering::hazards::hazards;

const BOUNDS: &str = "src/preload/process/bounds.rs";

/// Files that read the clock or sleep for other reasons, each with its reason.
const OTHERS: &[(&str, &str)] = &[
    ("src/preload/clock.rs", "is the clock"),
    ("src/preload/process/library_thread.rs", "is the sleep"),
    ("src/preload/test_delay.rs", "gives other threads time in test builds"),
    ("src/preload/state/thread_cache/shard.rs", "the lock of a list, held for some instructions"),
    ("src/preload/driver_memory/measured.rs", "says when it was measured"),
    ("src/preload/statistics/counters.rs", "measures"),
    ("src/preload/statistics/waits.rs", "measures"),
    ("src/preload/record/persistent/names.rs", "the pace of our own thread"),
    ("src/preload/trim/idle.rs", "the pace of our own thread"),
    ("src/preload/trim/scavenger.rs", "the pace of our own thread"),
    ("src/preload/peer_reclaim/mod.rs", "how long another process is waited for is an option"),
    ("src/preload/peer_reclaim/pages.rs", "as above"),
    ("src/preload/peer_reclaim/patience.rs", "a process that does not work is not waited for"),
    ("src/preload/peer_reclaim/queue.rs", "as above"),
    ("src/preload/process/lock_timeout.rs", "locks that a stopped thread may hold, for a snapshot"),
    ("src/preload/assembly/lifetime.rs", "the end by a signal"),
    ("src/preload/out_of_memory/noted.rs", "says when it was noted"),
    ("src/preload/snapshots/cut.rs", "a snapshot, in a thread of its own"),
    ("src/preload/snapshots/stop.rs", "as above"),
    ("src/preload/snapshots/writer.rs", "as above"),
    ("src/preload/interpose/signals/view.rs", "another thread's handler, for some instructions"),
];

/// Limits in the code by name, written as in the table.
fn of_code() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(BOUNDS)).expect(BOUNDS);
    let (_, rows) = text.split_once("\nbounds! {").expect("the bounds");
    let (rows, _) = rows.split_once("\n}").expect("their end");
    let rows = rows.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let row = |line: &str| {
        let (name, limit) = line.split_once(" = ")?;
        let (kind, rest) = limit.split_once('(')?;
        let (amount, _) = rest.split_once(')')?;
        let unit = if kind == "Looks" { "looks" } else { "ms" };
        // The replay of `cachealloc fit` has the same bound.
        let shared = ("ROOM_TRIES_MAX", ROOM_TRIES_MAX.to_string());
        let amount = if amount == shared.0 { shared.1 } else { amount.replace('_', "") };
        Some((name.to_string(), format!("{amount} {unit}")))
    };
    rows.filter_map(row).collect()
}

#[test]
fn the_table_has_every_bound() {
    let text = fs::read_to_string(root().join("docs/ordering.md")).expect("a document");
    let (_, section) = text.split_once("\n## 12. Bounds").expect("the section");
    let bounds = of_code();
    assert!(bounds.len() > 10, "{bounds:?}");
    for (name, limit) in &bounds {
        let row = section.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let said = match row {
            Some(row) => row.split('|').nth(2).expect("a limit").trim() == limit,
            None => section.contains(&format!("`{name}` ({limit}")),
        };
        assert!(said, "docs/ordering.md says nothing of {name}, {limit}");
    }
    for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, _) = row.split_once('`').expect("a name");
        assert!(bounds.contains_key(name), "{BOUNDS} has no {name}");
        assert_eq!(row.matches('|').count(), 5, "a cell is missing: {row}");
    }
}

#[test]
fn no_other_wait_has_a_time_limit() {
    let mut found = Vec::new();
    look(&root().join("src/preload"), &mut found);
    let known: Vec<&str> = OTHERS.iter().map(|(file, _)| *file).collect();
    let unknown: Vec<_> = found.iter().filter(|file| !known.contains(&file.as_str())).collect();
    assert!(unknown.is_empty(), "wait without a bound of {BOUNDS}: {unknown:?}");
    let gone: Vec<_> = known.iter().filter(|file| !found.contains(&(**file).into())).collect();
    assert!(gone.is_empty(), "no longer wait: {gone:?}");
}

fn look(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            look(&path, found);
            continue;
        }
        let file = path.strip_prefix(root()).expect("below").to_string_lossy().into_owned();
        if !file.ends_with(".rs") || file == BOUNDS || file.contains("/build/") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let code = text.lines().map(|line| line.split("//").next().expect("what is before"));
        let waits = |line: &str| {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| {
                let clocks = ["Instant", "sleep", "nanosleep", "yield_now", "spin_loop"];
                clocks.contains(&word) || ["TRIES_MAX", "LOOKS_MAX"].contains(&word)
            })
        };
        if code.into_iter().any(waits) {
            found.push(file);
        }
    }
}

/// For each bound, a hazard that hangs without it, and one that differs when it is zero.
const SIDES: &[(&str, Option<&str>, Option<&str>)] = &[
    (
        "FREES_OF_OTHERS",
        Some("query_beside_work_without_end"),
        Some("queries_behind_a_thread_that_lives"),
    ),
    (
        "LAST_REFERENCE",
        Some("request_before_an_end_is_let_go"),
        Some("room_beside_a_detach_behind_an_unknown_table"),
    ),
    (
        "MEMORY_ON_ITS_WAY",
        Some("stream_memory_beside_work_without_end"),
        Some("stream_memory_beside_memory_on_its_way"),
    ),
    // The driver does the reporting.
    ("REPORTS_OF_GRAPHS", None, Some("capture_of_a_green_context")),
    // Threads take turns by chance.
    ("ROOM", None, Some("launch_that_lacks_memory")),
];

/// Long enough also for the bounds that a program waits out without the library.
const HANGS_S: u32 = 15;
/// On a busy machine one thread may come before the other.
const TRIES_MAX: usize = 5;

#[test]
fn both_sides_of_a_bound_have_a_program() {
    let (hazards, document) = (hazards(), fs::read_to_string(root().join("docs/ordering.md")));
    let document = document.expect("docs/ordering.md");
    let differs = |bound: &str, limit: &str, name: &str| {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{bound}` |")));
        assert!(row.is_some_and(|row| row.contains(name)), "the row of {bound} lacks {name}");
        let hazard = hazards.iter().find(|hazard| hazard.name == name).expect(name);
        let is_wrong = |_| {
            let run = hazard.run().env("CACHEALLOC_BOUND", format!("{bound}:{limit}"));
            let ran = run.conf("free_mode:ordered").hangs_within(HANGS_S).output();
            hazard.wrong(&ran, Some(&hazard.natively())).is_some()
        };
        assert!((0..TRIES_MAX).any(is_wrong), "{bound}:{limit}");
    };
    std::thread::scope(|scope| {
        for (bound, unbounded, nothing) in SIDES {
            scope.spawn(|| {
                unbounded.iter().for_each(|name| differs(bound, "none", name));
                nothing.iter().for_each(|name| differs(bound, "0", name));
            });
        }
    });
}

/// Frees of another thread that would not have returned without the library delay a request only
/// for a bounded time.
#[test]
fn request_beside_blocked_frees_is_refused_in_time() {
    let hazard =
        hazards().into_iter().find(|it| it.name == "stream_memory_beside_frees_without_end");
    let hazard = hazard.expect("the hazard");
    let natively = hazard.natively();
    let is_as_natively = |_| {
        let broken = hazard.run().env("CACHEALLOC_BREAK", Rule::OthersPlainFreesForAWhile.name());
        let ran = broken.conf("free_mode:ordered").hangs_within(HANGS_S).output();
        (ran.code, &ran.stdout) == (Some(0), &natively.stdout)
    };
    assert!(!(0..TRIES_MAX).all(is_as_natively));
}

/// Memory freed before another thread's free has its own bound, not that of queries.
#[test]
fn earlier_frees_do_not_affect_queries() {
    let name = "memory_freed_before_anothers_free";
    let hazard = hazards().into_iter().find(|it| it.name == name).expect("the hazard");
    let natively = hazard.natively();
    let is_served = |bound: &str| {
        let run = hazard.run().env("CACHEALLOC_BOUND", format!("{bound}:0"));
        run.conf("free_mode:ordered").output().stdout == natively.stdout
    };
    assert!(is_served("FREES_OF_OTHERS"));
    // On a busy machine the request may come before the free.
    assert!((0..TRIES_MAX).any(|_| !is_served("MEMORY_ON_ITS_WAY")));
}

#[test]
fn process_end_waits_for_text_for_a_bounded_time() {
    let run = |how: &str, limit: &str| {
        let run = Run::c("kernel_text.c").arg(how).env("SIM_DEADLOCK_MS", "600000");
        run.env("CACHEALLOC_BOUND", format!("WORK_AT_EXIT:{limit}")).output().stdout
    };
    assert_eq!(run("main", "0"), "");
    assert_eq!(run("main", "none"), "the kernel says 1\n");
    assert_eq!(run("alarm", "0"), "ends\n");
    assert_eq!(run("alarm", "none"), "stays\n");
}

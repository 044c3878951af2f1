//! The sentences of the page.

use cachealloc_analysis::model::{Action, Dropped, StackId};

use cachealloc_report::last_of_each_process;

use crate::made::{MIB, Made, edit, small};
use crate::page::written;

pub fn sentences(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once("<div id=\"findings\"><ul>").expect("the findings");
    let (list, _) = rest.split_once("</ul>").expect("their end");
    let items = list.split("<li>").filter(|item| !item.is_empty());
    let text = |item: &str| {
        let item = item.trim_end_matches("</li>");
        // A link to the subject may follow.
        item.rsplit_once(" <a href=").map_or(item, |(text, _)| text).to_string()
    };
    items.map(text).collect()
}

/// The link of a finding encodes the characters of its call site that HTML does not allow there.
#[test]
fn findings_lead_to_what_they_speak_of() {
    let page = written(&[small().input("small.pickle")]);
    for link in [
        "<a href=\"#ooms\">Out of memory</a></li>",
        "<a href=\"#timeline&amp;at=3\">Over time</a></li>",
        "<a href=\"#fit\">Smaller device</a></li>",
        "<a href=\"#waste\">Waste</a></li>",
        "<a href=\"#segments\">Segments</a></li>",
    ] {
        assert!(page.contains(link), "{link}");
    }
    let mut made = Made::new();
    let stack = made.stack(&[("f<\"&'", "/a/b\"&'<c>.py", 1)]);
    (1..40).for_each(|address| made.keep(address << 20, MIB, stack));
    let page = written(&[made.input("growing")]);
    let link = "<a href=\"#sites&amp;sites=a/b%22%26%27%3cc%3e.py%3a1\">Call sites</a></li>";
    assert!(page.contains(link), "{}", sentences(&page).join("\n"));
}

#[test]
fn small_snapshot_in_words() {
    let found = sentences(&written(&[small().input("small.pickle")]));
    let wanted = [
        "Out of memory, 30 us after start: an allocation asked for 4.00 GiB, in passing user/app.py:7, \
         with 5.00 MiB free on the device; largest holder: passing user/app.py:7, 8.00 MiB. 9.00 MiB were free inside \
         segments, in 1 piece, all too small, the largest 9.00 MiB; the driver had 5.00 MiB.",
        "Peak: 13.0 MiB live, 20 us after start; 61.53 % of it from passing user/app.py:7; 22.0 MiB \
         reserved.",
        "In a replay, the run cannot fit within 27.0 MiB: it needs 4.01 GiB at once.",
        "1 block, 3.00 MiB, was never freed: all from keep user/app.cu:12.",
        "Fragmentation: 17.0 MiB of the 22.0 MiB reserved at the end (77.27 %) are free, but between blocks in use.",
    ];
    assert_eq!(found, wanted);
}

/// No call site is named where each holds nearly nothing.
#[test]
fn no_site_is_named_for_nearly_nothing() {
    let mut made = Made::new();
    for number in 1..=200 {
        let stack = made.stack(&[("f", "/a/b.py", number)]);
        made.keep(number << 20, MIB, stack);
    }
    let found = sentences(&written(&[made.input("many.pickle")]));
    let wanted =
        "Peak: 200 MiB live, 1.99 ms after start; no call site holds 1 % of it; 200 MiB reserved.";
    assert!(found.contains(&wanted.to_string()), "{found:?}");
}

/// One site holds little, but always more; another holds much, all allocated at the start.
#[test]
fn growing_sites_are_named() {
    let mut made = Made::new();
    let large = made.stack(&[("build", "/home/user/model.py", 3)]);
    let leak = made.stack(&[("log", "/home/user/train.py", 9)]);
    for block in 1..30 {
        made.keep(block << 40, 900 * MIB, large);
    }
    for step in 1..400 {
        made.keep(step << 30, MIB, leak);
    }
    let found = sentences(&written(&[made.input("growing")]));
    let growing: Vec<_> = found.iter().filter(|finding| finding.contains("growing")).collect();
    assert_eq!(
        growing,
        [
            "log user/train.py:9 keeps growing: 399 blocks, 399 MiB, allocated throughout the run, none freed."
        ]
    );
}

/// A few blocks that are allocated regularly, and freed when the program ends: nearly every program
/// frees all its blocks then.
#[test]
fn memory_freed_only_at_the_end_has_grown() {
    for blocks in [12, 15, 200] {
        let mut made = Made::new();
        let scratch = made.stack(&[("scratch", "/home/user/train.py", 3)]);
        let leak = made.stack(&[("log", "/home/user/train.py", 9)]);
        for step in 0..blocks {
            for _ in 0..4 {
                made.entry(Action::Alloc, 1 << 20, MIB, scratch);
                made.entry(Action::Free, 1 << 20, MIB, scratch);
            }
            made.entry(Action::Alloc, (step + 1) << 30, MIB, leak);
        }
        for step in 0..blocks {
            made.entry(Action::Free, (step + 1) << 30, MIB, leak);
        }
        let found = sentences(&written(&[made.input("growing")]));
        let wanted = format!(
            "log user/train.py:9 keeps growing: {blocks} blocks, {blocks}{} MiB, allocated throughout the run, \
             none freed before the program ended.",
            if blocks < 100 { ".0" } else { "" }
        );
        assert!(found.contains(&wanted), "{found:?}");
        // Memory that is allocated and freed again does not grow.
        let growing = found.iter().filter(|it| it.contains("growing")).count();
        assert_eq!(growing, 1, "{found:?}");
    }
}

/// Memory loaded at the start does not grow, however many blocks it is.
#[test]
fn initial_loading_is_not_growth() {
    let mut made = Made::new();
    let load = made.stack(&[("load", "/home/user/train.py", 3)]);
    let step = made.stack(&[("step", "/home/user/train.py", 9)]);
    for block in 1..30 {
        made.keep(block << 40, MIB, load);
    }
    for _ in 0..300 {
        made.entry(Action::Alloc, 1 << 20, MIB, step);
        made.entry(Action::Free, 1 << 20, MIB, step);
    }
    let found = sentences(&written(&[made.input("loaded")]));
    assert!(!found.iter().any(|it| it.contains("growing")), "{found:?}");
}

/// Each pass through a range leaves a block allocated.
#[test]
fn a_range_that_grows_is_named() {
    let mut made = Made::new();
    let scratch = made.stack(&[("scratch", "/home/user/train.py", 3)]);
    let kept = made.stack(&[("log", "/home/user/train.py", 9)]);
    for step in 0..10 {
        made.entry(Action::Alloc, 1 << 20, MIB, scratch);
        made.within("step", 1);
        made.keep((step + 1) << 30, MIB, kept);
        made.within("step", 0);
        made.entry(Action::Free, 1 << 20, MIB, scratch);
        made.within("step", 0);
    }
    let found = sentences(&written(&[made.input("ranges")]));
    let wanted =
        "The range step keeps growing: 10.0 MiB left after 10 passes; 10 of them left memory.";
    assert!(found.iter().any(|it| it == wanted), "{found:?}");
}

/// The failed call recorded in the file comes first, by its function and kind. A failure that was
/// overcome is no such finding.
#[test]
fn failed_calls_are_described_by_their_request() {
    let told = |overcome: bool| {
        let mut made = small();
        let entry =
            made.snapshot.devices[0].entries.iter().find(|it| it.action == Action::OutOfMemory);
        let entry = entry.expect("one failed");
        let text = format!(
            "function=cuMemCreate kind=physical device=0 thread=1 overcome={overcome} bytes={} time_us={}",
            entry.bytes, entry.time_us
        );
        made.snapshot.settings.ours.push(("out_of_memory 0".to_string(), text));
        sentences(&written(&[made.input("failed")]))
    };
    let found = told(false);
    let wanted =
        "Out of memory, 30 us after start: cuMemCreate asked for 4.00 GiB of physical memory";
    assert!(found[0].starts_with(wanted), "{found:?}");
    let found = told(true);
    assert!(found[0].starts_with("Peak: "), "{found:?}");
    let wanted = "1 call failed for lack of memory, but the program recovered by a retry or a smaller request";
    assert!(found.iter().any(|it| it.starts_with(wanted)), "{found:?}");
}

/// A rank that ran out of memory is named first, whatever the others hold.
#[test]
fn the_rank_that_failed_is_named_first() {
    let files: Vec<_> = (0..4)
        .map(|rank| {
            let mut made = small();
            made.edit(|entries| {
                if rank != 2 {
                    entries.retain(|entry| entry.action != Action::OutOfMemory);
                }
                entries.iter_mut().for_each(|entry| entry.time_us += rank);
            });
            made.snapshot.settings.ours.push(("rank".to_string(), rank.to_string()));
            made.input(&format!("r{rank}.pickle"))
        })
        .collect();
    let found = sentences(&written(&files));
    assert!(found[0].starts_with("Rank 2 (r2.pickle): Out of memory, "), "{found:?}");
}

/// Two runs, one after the other: their memory was not held at the same time.
#[test]
fn two_runs_are_compared() {
    let mut inputs = ["before", "after"].map(|name| small().input(name));
    edit(&mut inputs[1].snapshot, |entries| {
        for entry in entries {
            entry.time_us += 1_000_000;
            entry.bytes /= 2;
        }
    });
    let found = sentences(&written(&inputs));
    let wanted = "Two consecutive runs, compared and not added up: peak 13.0 MiB in before";
    assert!(found.iter().any(|it| it.starts_with(wanted)), "{found:?}");
}

/// Several processes count with their last snapshots; those of one process are all compared.
#[test]
fn a_process_is_not_counted_twice() {
    let of_process = |process: &str, name: &str, entries: usize| {
        let mut input = small().input(name);
        let facts = [("host", "node7"), ("process", process)];
        let facts = facts.map(|(name, value)| (name.to_string(), value.to_string()));
        input.snapshot.settings.ours.extend(facts);
        edit(&mut input.snapshot, |all| all.truncate(entries));
        input
    };
    let inputs =
        || vec![of_process("1", "a0", 3), of_process("1", "a1", 99), of_process("2", "b0", 99)];
    let (last, earlier) = last_of_each_process(inputs(), true);
    let names: Vec<_> = last.iter().map(|input| input.name.as_str()).collect();
    assert_eq!((names, earlier), (vec!["a1", "b0"], vec!["a0".to_string()]));
    let moments = || vec![of_process("1", "a0", 3), of_process("1", "a1", 99)];
    assert_eq!(last_of_each_process(moments(), true).0.len(), 2);
    assert_eq!(last_of_each_process(moments(), false).0.len(), 1);
}

#[test]
fn temporaries_are_counted() {
    let mut made = Made::new();
    let scratch = made.stack(&[("scratch", "/home/user/app.c", 5)]);
    for _ in 0..1200 {
        made.entry(Action::Alloc, 1 << 30, MIB, scratch);
        made.entry(Action::Free, 1 << 30, MIB, StackId::NONE);
    }
    let found = sentences(&written(&[made.input("loop")]));
    let wanted = "1,200 of 1,200 allocations (100.00 %) were temporary (freed after at most 1 other allocation): most (1,200) from scratch user/app.c:5.";
    assert!(found.iter().any(|finding| finding == wanted), "{found:?}");
    assert!(found.iter().any(|finding| finding.starts_with("Every block was freed")), "{found:?}");
}

#[test]
fn missing_data_is_reported() {
    let mut made = small();
    made.snapshot.settings.dropped = Dropped::Count(3);
    let found = sentences(&written(&[made.input("ring")]));
    assert!(
        found.iter().any(|finding| finding.contains("The oldest 3 entries were dropped")),
        "{found:?}"
    );

    let mut made = small();
    made.edit(Vec::clear);
    let found = sentences(&written(&[made.input("state")]));
    assert!(found.iter().any(|finding| finding.contains("no history")), "{found:?}");
    assert!(!found.iter().any(|finding| finding.contains("never freed")), "{found:?}");
}

/// A finding common to two ranks is printed once, with both names; a finding of one rank has its
/// name.
#[test]
fn common_findings_are_reported_once() {
    let rank = |number: u64, more: u64| {
        let mut made = small();
        if more > 0 {
            let stack = made
                .stack(&[("passing", "/home/user/app.py", 7), ("main", "/home/user/app.cu", 40)]);
            made.entry(Action::Alloc, 1 << 40, more, stack);
            made.entry(Action::Free, 1 << 40, more, StackId::NONE);
        }
        made.edit(|entries| entries.iter_mut().for_each(|entry| entry.time_us += number));
        made.input(&format!("rank{number}"))
    };
    let alone = sentences(&written(&[rank(0, 0)]));
    let both = alone.iter().map(|finding| format!("rank0 and rank1: {finding}"));
    assert_eq!(sentences(&written(&[rank(0, 0), rank(1, 0)])), both.collect::<Vec<_>>());
    // One rank has the higher peak, from the same call site.
    let found = sentences(&written(&[rank(0, 0), rank(1, 11 * MIB)]));
    let peaks: Vec<_> = found.iter().filter(|finding| finding.contains("Peak: ")).collect();
    let wanted = "rank0 and rank1: Peak: 14.0 MiB live, 90 us after start; 78.57 % of it from passing user/app.py:7; \
                  22.0 MiB reserved. These are the figures of rank1, the largest.";
    assert_eq!(peaks, [wanted]);
    assert_eq!(found.len(), 5, "{found:?}");
    // A much higher peak is a separate finding.
    let found = sentences(&written(&[rank(0, 0), rank(1, 100 * MIB)]));
    assert!(found[0].starts_with("rank0 and rank1: Out of memory"), "{found:?}");
    assert!(found[1].starts_with("rank0: Peak: 13.0 MiB"), "{found:?}");
    assert!(found[5].starts_with("rank1: Peak: 103 MiB"), "{found:?}");
    // Another call site is another finding. Data missing in the files is also reported once.
    let mut others = [rank(0, 0), rank(1, 0)];
    for input in &mut others {
        input.snapshot.settings.dropped = Dropped::Count(3);
    }
    others[1].snapshot.devices[0].segments.truncate(1);
    others[1].snapshot.devices[0].segments[0].blocks.truncate(1);
    let found = sentences(&written(&others));
    let is = |begin: &str| found.iter().filter(|finding| finding.starts_with(begin)).count();
    assert_eq!((is("rank0: Fragmentation"), is("rank1: Fragmentation")), (1, 0), "{found:?}");
    assert_eq!(is("rank0 and rank1: The oldest 3 entries were dropped"), 1, "{found:?}");
}

/// All memory goes through one line, so that line is not informative; its callers are.
#[test]
fn a_function_that_all_goes_through_is_split_by_its_callers() {
    let mut made = Made::new();
    let get = ("get", "/home/user/pool.c", 12);
    let through = ("through", "/home/user/pool.c", 30);
    for (step, name) in ["weights", "leak"].into_iter().enumerate() {
        let stack = made.stack(&[get, through, (name, "/home/user/app.c", 5 + step as u64)]);
        made.keep((1 + step as u64) << 30, MIB, stack);
    }
    let page = written(&[made.input("wrapped")]);
    let found = sentences(&page);
    let leak = "most (1.00 MiB) from get user/pool.c:12 < weights user/app.c:5";
    assert!(found.iter().any(|finding| finding.replace("&lt;", "<").contains(leak)), "{found:?}");
    assert!(page.contains("user/pool.c:12 &lt; weights user/app.c:5"), "it is escaped");
}

/// A line that is called from two places, and stands for little, is one site.
#[test]
fn small_sites_are_not_split() {
    let mut made = Made::new();
    let stacks: Vec<_> = (0..10)
        .map(|line| made.stack(&[("f", "/u/a.c", line / 2), ("main", "/u/main.c", line)]))
        .collect();
    for (step, stack) in (1..).zip(stacks) {
        made.keep(step << 30, MIB, stack);
    }
    let strings = crate::page::columns(&written(&[made.input("small")]))["strings"].clone();
    let texts = strings.as_array().expect("a list");
    assert!(texts.iter().any(|text| text == "u/a.c:1"), "{texts:?}");
    assert!(
        !texts.iter().any(|text| text.as_str().is_some_and(|it| it.contains(" < "))),
        "{texts:?}"
    );
}

/// Forty sentences of eight ranks are too many to read.
#[test]
fn highest_peak_of_many_files_is_described() {
    let files: Vec<_> = (0..4u64)
        .map(|rank| {
            let mut made = small();
            if rank == 2 {
                let stack = made.stack(&[("f", "/u/a.c", 1)]);
                made.keep(1 << 40, 100 * MIB, stack);
            }
            made.edit(|entries| entries.iter_mut().for_each(|entry| entry.time_us += rank));
            made.input(&format!("rank{rank}"))
        })
        .collect();
    let found = sentences(&written(&files));
    let begins =
        found[1..].iter().map(|it| it.split(": ").next().expect("a name")).collect::<Vec<_>>();
    let (three, all) = ("rank0, rank1 and rank3", "rank0, rank1, rank2 and rank3");
    assert!(found[0].starts_with(&format!("{all}: Out of memory")), "{found:?}");
    assert!(found[1].starts_with("rank2 has the highest peak of 4"), "{found:?}");
    // The peak; memory that was not freed; fragmentation, of the three and of the one that has less
    // of it.
    assert_eq!(begins[1], three, "{found:?}");
    assert!(begins[2..].contains(&"rank2") && begins.len() < 8, "{found:?}");
    let rank = |rank: u64| {
        let mut made = small();
        made.edit(|entries| entries.iter_mut().for_each(|entry| entry.time_us += rank));
        made.input(&format!("rank{rank}"))
    };
    let found = sentences(&written(&(0..6).map(rank).collect::<Vec<_>>()));
    assert!(found[2].starts_with("All 6: Peak: ") && found.len() == 6, "{found:?}");
}

/// A snapshot at an out-of-memory failure and one at the end: the second has the first one's
/// history.
#[test]
fn of_moments_of_one_process_the_last_tells() {
    let mut inputs = ["first", "second"].map(|name| small().input(name));
    let facts = [("host", "node7"), ("process", "4711")];
    for input in &mut inputs {
        let facts = facts.map(|(name, value)| (name.to_string(), value.to_string()));
        input.snapshot.settings.ours.extend(facts);
        input.snapshot.settings.dropped = Dropped::Count(0);
    }
    edit(&mut inputs[0].snapshot, |entries| entries.truncate(3));
    let found = sentences(&written(&inputs));
    let alone = sentences(&written(&inputs[1..]));
    assert_eq!(found[1], "2 snapshots of one process; the findings are those of the last, second.");
    let others = [&found[..1], &found[2..]].concat();
    assert_eq!(others, alone, "its name is not repeated");
    // The later of two equal snapshots counts, though its clock may show a slightly earlier time.
    let mut same = ["shortage", "exit"].map(|name| small().input(name));
    for input in &mut same {
        input.snapshot.settings = inputs[1].snapshot.settings.clone();
    }
    edit(&mut same[0].snapshot, |entries| {
        entries.iter_mut().for_each(|entry| entry.time_us += 1);
    });
    assert!(sentences(&written(&same))[1].ends_with("those of the last, exit."));
    // The first snapshot still has entries that the last one has lost.
    inputs[1].snapshot.settings.dropped = Dropped::Count(7);
    let found = sentences(&written(&inputs));
    assert!(found.iter().any(|finding| finding.starts_with("first: Peak: ")), "{found:?}");
}

/// Allocations that reached the driver: one after two seconds without any, and three since.
#[test]
fn a_steady_state_and_what_ended_the_one_before() {
    let told = |entries_count: usize| {
        let mut made = Made::new();
        let first = made.stack(&[("load", "/home/user/app.c", 5)]);
        let later = made.stack(&[("evaluate", "/home/user/app.c", 9)]);
        let entries = [
            (0, Action::SegmentAlloc, first),
            (900_000, Action::SegmentAlloc, first),
            (2_900_000, Action::SegmentAlloc, later),
            (3_000_000, Action::SegmentMap, first),
            (6_000_000, Action::Alloc, first),
        ];
        for (us, action, stack) in entries.into_iter().take(entries_count) {
            made.entry(action, 1 << 30 | us, MIB, stack);
            made.edit(|entries| {
                let begin_us = entries[0].time_us;
                entries.last_mut().expect("an entry").time_us = begin_us + us;
            });
        }
        let found = sentences(&written(&[made.input("steady")]));
        found.into_iter().filter(|finding| finding.contains("driver")).collect::<Vec<_>>()
    };
    let now = "No allocation reached the driver in the last 3.00 s; the previous steady state, of 2.00 s, was \
               ended by evaluate user/app.c:9.";
    let before = "The last steady state without an allocation that reached the driver, of 2.00 s, was ended by \
                  evaluate user/app.c:9.";
    assert_eq!(told(5), [now]);
    assert_eq!(told(4), [before]);
    assert_eq!(told(2), [""; 0]);
}

/// Only the end of the program shows that a block was never freed.
#[test]
fn why_a_snapshot_was_taken_counts() {
    for (why, wanted) in [
        ("exit", "1 block, 3.00 MiB, was never freed: all"),
        ("asked", "1 block, 3.00 MiB, was live when the snapshot was requested: all"),
        ("shortage", "1 block, 3.00 MiB, was live when memory ran out: all"),
        ("signal", "1 block, 3.00 MiB, was live when a signal ended the program: all"),
    ] {
        let mut input = small().input("small.pickle");
        input.snapshot.settings.ours.push(("taken".to_string(), why.to_string()));
        let found = sentences(&written(&[input]));
        assert!(found.iter().any(|finding| finding.starts_with(wanted)), "{found:?}");
    }
}

//! The sentences of the page.

use cachealloc_analysis::model::{Action, Dropped, StackId};

use crate::made::{MIB, Made, small};
use crate::page::written;

fn sentences(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once("<div id=\"findings\"><ul>").expect("the findings");
    let (list, _) = rest.split_once("</ul>").expect("their end");
    let items = list.split("<li>").filter(|item| !item.is_empty());
    items.map(|item| item.trim_end_matches("</li>").to_string()).collect()
}

#[test]
fn small_snapshot_in_words() {
    let found = sentences(&written(&[small().input("small.pickle")]));
    let wanted = [
        "At the peak, 20 us after the begin, there were 13.0 MiB alive, 62 % of it from user/app.py:7 \
         (passing); 22.0 MiB were reserved.",
        "1 request could not be served: 4.00 GiB at 30 us, when 5.00 MiB were free on the device; \
         user/app.py:7 (passing) held most, 8.00 MiB.",
        "1 block, 3.00 MiB, were never freed: all from user/app.cu:12 (keep).",
        "17.0 MiB of the 22.0 MiB that are reserved at the end (77 %) are free, but lie between \
         blocks in use: fragmentation.",
    ];
    assert_eq!(found, wanted);
}

/// A site holds little, but always more; another holds much, and was allocated at first.
#[test]
fn what_grows_is_named() {
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
            "user/train.py:9 (log) keeps growing: 399 blocks, 399 MiB, through all of the run, and none freed."
        ]
    );
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
    let wanted = "1,200 of 1,200 allocations (100 %) were temporary, freed with at most 1 other in \
                  between: most (1,200) from user/app.c:5 (scratch).";
    assert!(found.iter().any(|finding| finding == wanted), "{found:?}");
    assert!(found.iter().any(|finding| finding.starts_with("Every block was freed")), "{found:?}");
}

#[test]
fn what_is_missing_is_said() {
    let mut made = small();
    made.snapshot.settings.dropped = Dropped::Count(3);
    let found = sentences(&written(&[made.input("ring")]));
    assert!(found.iter().any(|finding| finding.contains("lost its oldest 3 entries")), "{found:?}");

    let mut made = small();
    made.snapshot.devices[0].entries.clear();
    let found = sentences(&written(&[made.input("state")]));
    assert!(found.iter().any(|finding| finding.contains("no history")), "{found:?}");
    assert!(!found.iter().any(|finding| finding.contains("never freed")), "{found:?}");
}

#[test]
fn several_files_are_named() {
    let mut other = small();
    other.snapshot.devices[0].entries.iter_mut().for_each(|entry| entry.time_us += 1);
    let found = sentences(&written(&[small().input("rank0"), other.input("rank1")]));
    for name in ["rank0: ", "rank1: "] {
        assert_eq!(
            found.iter().filter(|finding| finding.starts_with(name)).count(),
            4,
            "{found:?}"
        );
    }
}

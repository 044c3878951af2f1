//! Numbers of a report that the command prints, counted by hand. `scripts/report/test.py` checks
//! that they equal the page's.

use cachealloc_analysis::model::Action;
use cachealloc_analysis::{AdjacentFree, When};
use cachealloc_report::{FitWhen, Held, SegmentFree, tell};

use crate::findings::sentences;
use crate::made::{MIB, small};
use crate::page::{columns, written};

#[test]
fn a_small_snapshot() {
    let inputs = [small().input("small.pickle")];
    let told = tell(&inputs, FitWhen::Short, When::End);
    assert_eq!(told.findings, sentences(&written(&inputs)));
    let [device] = &told.devices[..] else { panic!("it has one device") };
    assert_eq!((device.file, device.device), (0, 0));

    let [failed] = &device.failed[..] else { panic!("one allocation failed") };
    assert_eq!((failed.since_start_us, failed.requested_bytes >> 20), (30, 4096));
    let of_device = [failed.device_free_bytes, failed.reserved_bytes, failed.live_bytes];
    assert_eq!(of_device.map(|bytes| bytes >> 20), [5, 22, 13]);
    assert_eq!(failed.site, "passing user/app.py:7");

    let ranges: Vec<_> = device
        .ranges
        .iter()
        .map(|range| {
            let passes = range.passes.iter();
            let passes = passes.map(|it| (it.since_start_us, it.length_us, it.grew_bytes >> 20));
            (range.name.as_str(), passes.collect::<Vec<_>>())
        })
        .collect();
    let step = vec![(20, 20, 0), (50, 0, 1)];
    let wanted = [("load", vec![(10, 0, 3)]), ("step", step), ("step/forward", vec![(20, 0, 8)])];
    assert_eq!(ranges, wanted);
    let mib = MIB as i64;
    assert_eq!(device.ranges[1].grew_bytes(), (mib, mib, mib));

    let was_kept = Held {
        bytes: 3 * MIB,
        blocks_count: 1,
        first_us: Some(10),
        last_us: Some(10),
        freed_us: None,
        site: "keep user/app.cu:12".to_string(),
    };
    assert_eq!(device.held_at_end, std::slice::from_ref(&was_kept));
    assert_eq!(device.early, [was_kept]);
    let from_before = Held {
        bytes: 2 * MIB,
        blocks_count: 1,
        first_us: None,
        last_us: None,
        freed_us: Some(80),
        site: "(no stack)".to_string(),
    };
    assert_eq!(device.late, [from_before]);

    let inside = device.inside.as_ref().expect("there is always an end");
    assert_eq!((inside.segments_count, inside.usage.stuck_bytes >> 20), (2, 17));
    assert_eq!(inside.sizes, [(17 * MIB, 1), (2 * MIB, 1)]);
    let kept = AdjacentFree {
        free_bytes: 17 * MIB,
        free_count: 1,
        blocks_count: 1,
        blocks_bytes: 3 * MIB,
    };
    assert_eq!(sites(inside), [("keep user/app.cu:12", kept)]);
}

fn sites(inside: &SegmentFree) -> Vec<(&str, AdjacentFree)> {
    inside.beside.iter().map(|each| (each.site.as_str(), each.beside)).collect()
}

/// When the allocation failed, 3 and 8 MiB lay before 9 MiB that were free, and the 2 MiB from
/// before were still held.
#[test]
fn free_memory_at_a_failed_allocation() {
    let inputs = [small().input("small.pickle")];
    let told = tell(&inputs, FitWhen::Short, When::Shortage);
    let [device] = &told.devices[..] else { panic!("it has one device") };
    assert_eq!(device.inside_us, 30);
    let failed = &device.failed[0];
    for inside in [&device.inside, &failed.inside] {
        let inside = inside.as_ref().expect("one allocation failed");
        assert_eq!((inside.segments_count, inside.usage.reserved_bytes), (2, 22 * MIB));
        assert_eq!((inside.usage.free_bytes, inside.usage.stuck_bytes), (9 * MIB, 9 * MIB));
        assert_eq!(inside.sizes, [(9 * MIB, 1)]);
        let passing = AdjacentFree {
            free_bytes: 9 * MIB,
            free_count: 1,
            blocks_count: 1,
            blocks_bytes: 8 * MIB,
        };
        assert_eq!(sites(inside), [("passing user/app.py:7", passing)]);
    }
    assert_eq!(failed.fitting_count, 0);
    let why = "An allocation of 4.00 GiB failed: 9.00 MiB were free inside segments, in 1 piece, \
               all too small, the largest 9.00 MiB; the driver had 5.00 MiB.";
    assert!(
        columns(&written(&inputs))["strings"].as_array().expect("a list").contains(&why.into())
    );

    let first = tell(&inputs, FitWhen::Short, When::Entry(1));
    let inside = first.devices[0].inside.as_ref().expect("an entry");
    assert_eq!((inside.usage.free_bytes, inside.usage.stuck_bytes), (20 * MIB, 0));
    assert!(inside.beside.is_empty());
}

#[test]
fn a_device_on_which_nothing_failed_has_no_such_moment() {
    let mut made = small();
    made.edit(|entries| entries.retain(|it| it.action != Action::OutOfMemory));
    let told = tell(&[made.input("small.pickle")], FitWhen::Short, When::Shortage);
    assert!(told.devices[0].inside.is_none());
}

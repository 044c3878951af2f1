//! `cachealloc findings` prints what a report shows first, with the same numbers.

use cachealloc_tests::Run;
use serde_json::Value;

use super::sites::{planted, run, said};
use crate::record::snapshots::Place;

fn json(place: &Place, file: &str) -> Value {
    serde_json::from_str(&said(place, &format!("findings {file} --json"))).expect("it is JSON")
}

/// Each step keeps 12 KiB, 4 of them in its forward part.
#[test]
fn growth_of_each_pass() {
    let place = Place::new();
    place
        .run(&Run::c("ranges.c").arg("phases").conf("record:all,snapshot:a.pickle,log:quiet"))
        .ok();
    let told = json(&place, "a.pickle");
    let ranges = told["devices"][0]["ranges"].as_array().expect("a list");
    let grew = |name: &str| -> Vec<i64> {
        let range = ranges.iter().find(|range| range["range"] == name).expect(name);
        let passes = range["passes"].as_array().expect("a list").iter();
        passes.map(|pass| pass["grew_bytes"].as_i64().expect("a number") >> 10).collect()
    };
    assert_eq!(grew("load"), [2]);
    assert_eq!(grew("step"), [12; 4]);
    assert_eq!(grew("step/forward"), [4; 4]);
    assert_eq!(grew("step/backward"), [0; 4]);
    let text = said(&place, "findings a.pickle -n 2");
    let wanted = "PASSES  TYPICALLY    AT MOST     IN ALL  RANGE\n     \
                  1  +2.00 KiB  +2.00 KiB  +2.00 KiB  load\n     \
                  4  +12.0 KiB  +12.0 KiB  +48.0 KiB  step\nand ";
    assert!(text.contains(wanted) && text.contains(" more: print all with -n 0\n"), "{text}");
    assert!(!said(&place, "findings a.pickle -n 0").contains("more:"));
}

#[test]
fn failed_allocations_and_blocks_beside_free_memory() {
    let place = planted();
    let text = said(&place, "findings 5.pickle");
    let first = text.lines().next().expect("a line");
    assert!(first.starts_with("Out of memory, "), "{text}");
    assert!(
        first.contains(
            "cuMemAlloc asked for 1.00 PiB of linear memory, in refused record/planted.c:"
        ),
        "{text}"
    );
    assert!(text.contains("\nPeak: 47.1 MiB live, "), "{text}");
    assert!(text.contains("\nIn a replay, the run cannot fit within 1020 MiB: "), "{text}");
    assert!(text.contains("\ndevice 0: 1 failed allocation\n\n"), "{text}");
    let told = json(&place, "5.pickle");
    let failed = &told["devices"][0]["failed_allocations"];
    assert_eq!(failed.as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(failed[0]["requested_bytes"], 1u64 << 50, "{told}");
    assert!(
        failed[0]["where"].as_str().is_some_and(|it| it.contains("refused record/planted.c:")),
        "{told}"
    );
    let beside = told["devices"][0]["beside_free"][0]["where"].as_str();
    assert!(
        beside.is_some_and(
            |site| site.contains("get record/planted.c:") && site.contains(" < leak record/")
        ),
        "{told}"
    );
    let inside = &failed[0]["inside"];
    assert!(inside["free_bytes"].as_u64() > Some(0) && failed[0]["fitting_pieces"] == 0, "{told}");
    assert!(text.contains("  FREE INSIDE  PIECES   LARGEST  WHERE\n"), "{text}");
    assert!(text.contains("reserved when an allocation of 1.00 PiB failed, "), "{text}");
    let held = &told["devices"][0]["held_at_end"];
    assert_eq!((&held[0]["bytes"], &held[0]["blocks"]), (&(15 << 20).into(), &5.into()), "{told}");
    assert!(held[0]["first_us"].as_u64() < held[0]["last_us"].as_u64(), "{told}");
    assert!(text.contains("\ndevice 0: late deallocation: "), "{text}");
    // With several files, each table has the name of its file.
    let text = said(&place, "findings 2.pickle 5.pickle");
    assert!(text.contains("\n5.pickle, device 0: 1 failed allocation\n"), "{text}");
}

/// Shows the segments at any moment: at a failed allocation, or in the middle of the run.
#[test]
fn the_segments_of_a_chosen_moment() {
    let place = planted();
    let at = |at: &str| -> Value {
        serde_json::from_str(&said(&place, &format!("findings 5.pickle --json --at {at}")))
            .expect("JSON")
    };
    let failed = &at("oom")["devices"][0];
    let then = &failed["failed_allocations"][0];
    for key in ["segments", "free_bytes", "stuck_bytes", "free_sizes", "beside_free"] {
        assert_eq!(failed[key], then["inside"][key], "{key}");
    }
    assert_eq!(failed["since_start_us"], then["since_start_us"]);
    let first = &at("#1")["devices"][0];
    assert_eq!(first["free_bytes"], first["reserved_bytes"], "nothing is allocated yet: {first}");
    assert!(said(&place, "findings 5.pickle --at peak").contains(" reserved at the peak, "));
    let nothing = run(&place, "findings 2.pickle --at oom");
    assert!(nothing.stderr.contains("no allocation failed in this history"), "{}", nothing.stderr);
}

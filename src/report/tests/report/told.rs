//! What the command prints of a report's numbers, counted by hand. That they are the page's: `scripts/report-test.py`.

use cachealloc_report::{Beside, FitWhen, Held, tell};

use crate::findings::sentences;
use crate::made::{MIB, small};
use crate::page::written;

#[test]
fn a_small_snapshot() {
    let inputs = [small().input("small.pickle")];
    let told = tell(&inputs, FitWhen::Short);
    assert_eq!(told.findings, sentences(&written(&inputs)));
    let [device] = &told.devices[..] else { panic!("it has one device") };
    assert_eq!((device.file, device.device), (0, 0));

    let [failed] = &device.failed[..] else { panic!("one allocation failed") };
    assert_eq!((failed.since_start_us, failed.requested_bytes >> 20), (30, 4096));
    let of_device = [failed.device_free_bytes, failed.reserved_bytes, failed.live_bytes];
    assert_eq!(of_device.map(|bytes| bytes >> 20), [5, 22, 13]);
    assert_eq!(failed.site, "user/app.py:7 (passing)");

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
        site: "user/app.cu:12 (keep)".to_string(),
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

    assert_eq!((device.segments_count, device.usage.stuck_bytes >> 20), (2, 17));
    let [beside] = &device.beside[..] else { panic!("one call site keeps free memory") };
    assert_eq!(beside.site, "user/app.cu:12 (keep)");
    let wanted =
        Beside { free_bytes: 17 * MIB, free_count: 1, blocks_count: 1, blocks_bytes: 3 * MIB };
    assert_eq!(beside.beside, wanted);
}

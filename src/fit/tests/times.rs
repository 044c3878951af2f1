//! The times of a history: while they pass, the library releases unused memory.

use cachealloc_analysis::model::{Action, Device, Entry, PoolId, Snapshot, StackId, TextId};
use cachealloc_fit::{DeviceFit, OptionSet, Question};

const MIB: u64 = 1 << 20;
const SECOND_US: u64 = 1_000_000;

fn entry(action: Action, time_us: u64, mib: u64) -> Entry {
    Entry {
        time_us,
        address: mib << 40,
        bytes: mib * MIB,
        stream: 0,
        stack: StackId::default(),
        category: TextId::default(),
        compile_context: TextId::default(),
        user_metadata: TextId::default(),
        pool: PoolId::DEFAULT,
        action,
        entered: 0,
    }
}

/// Allocates and frees 64 MiB, and allocates 96 MiB at this time.
fn fit(time_us: u64) -> DeviceFit {
    let times = [SECOND_US, 2 * SECOND_US, time_us].map(|us| if time_us == 0 { 0 } else { us });
    let entries = [
        entry(Action::Alloc, times[0], 64),
        entry(Action::Free, times[1], 64),
        entry(Action::Alloc, times[2], 96),
    ];
    let device = Device { entries: entries.into_iter().collect(), ..Device::default() };
    let defaults = [OptionSet::parse("").expect("none are sound")];
    let question = Question { sets: &defaults, device_bytes: None, with_failed: true };
    DeviceFit::of(&Snapshot::default(), &device, question)
}

#[test]
fn the_times_of_a_history_pass() {
    let reserved = |time_us| fit(time_us).trials[0].outcome.peak_reserved_bytes / MIB;
    assert_eq!((reserved(3 * SECOND_US), reserved(9 * SECOND_US)), (160, 96));
    // No file may take long.
    assert_eq!(reserved(u64::MAX), 96);
}

#[test]
fn history_without_times_is_reported() {
    let says = |time_us| fit(time_us).unknowns.iter().any(|it| it.contains("has no times"));
    assert!(says(0) && !says(3 * SECOND_US));
    assert_eq!(fit(0).trials[0].outcome.peak_reserved_bytes, 160 * MIB);
}

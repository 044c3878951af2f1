//! The ring, compared with a plain list.

use cachealloc_history::{Action, Entry, Ring, StackId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Push { time_ns: u64 },
    Clear,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let push = (0u64..200).prop_map(|time_ns| Operation::Push { time_ns });
    prop::collection::vec(prop_oneof![30 => push, 1 => Just(Operation::Clear)], 0..600)
}

proptest! {
    #[test]
    fn keeps_the_latest_in_order(entries_max in 0usize..400, operations in operations()) {
        let mut ring = Ring::new(entries_max);
        let mut all: Vec<Entry> = Vec::new();
        let mut last_ns = 0;
        for (number, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Push { time_ns } => {
                    let expected_ns = time_ns.max(last_ns + 1);
                    prop_assert_eq!(ring.push(entry(time_ns, number as u64)), expected_ns);
                    last_ns = expected_ns;
                    all.push(entry(expected_ns, number as u64));
                }
                Operation::Clear => {
                    ring.clear();
                    all.clear();
                }
            }
            ring.check();
        }
        let kept = &all[all.len().saturating_sub(entries_max.max(1))..];
        prop_assert_eq!(ring.iter().copied().collect::<Vec<_>>(), kept);
        prop_assert_eq!(ring.iter().len(), kept.len());
        prop_assert_eq!(ring.dropped_count(), (all.len() - kept.len()) as u64);
    }
}

#[test]
fn takes_memory_as_entries_come() {
    let mut ring = Ring::new(1_000_000);
    assert_eq!(ring.memory_bytes(), 0);
    for number in 0..10_000 {
        ring.push(entry(number, number));
        let needed = (ring.len() * size_of::<Entry>()).max(256 * size_of::<Entry>());
        assert!(ring.memory_bytes() <= 2 * needed, "{} for {needed}", ring.memory_bytes());
    }
    ring.clear();
    assert_eq!(ring.memory_bytes(), 0);
}

#[test]
fn takes_no_more_memory_than_the_bound() {
    let mut ring = Ring::new(300);
    for number in 0..1000 {
        ring.push(entry(number, number));
    }
    assert_eq!(ring.memory_bytes(), 300 * size_of::<Entry>());
    assert_eq!((ring.len(), ring.dropped_count()), (300, 700));
}

#[test]
fn time_at_its_end_does_not_wrap() {
    let mut ring = Ring::new(4);
    ring.push(entry(u64::MAX, 0));
    assert_eq!(ring.push(entry(0, 1)), u64::MAX);
}

fn entry(time_ns: u64, address: u64) -> Entry {
    Entry {
        time_ns,
        address,
        bytes: 1,
        stream: 0,
        stack: StackId::NONE,
        action: Action::Alloc,
        entered: 0,
        range: 0,
    }
}

//! The packed list of entries returns every field as it was added.

use cachealloc_analysis::model::{Action, Entries, Entry, PoolId, StackId, TextId};

const ACTIONS: [Action; 4] =
    [Action::Alloc, Action::FreeRequested, Action::FreeCompleted, Action::Other];

/// Entries whose fields change at different rates, up to the largest values.
fn entries() -> Vec<Entry> {
    let entry = |number: u64| Entry {
        time_us: u64::MAX - number,
        address: number / 2 * 512,
        bytes: u64::MAX / (number + 1),
        stream: [0, 7, u64::MAX][number as usize / 5 % 3],
        stack: StackId(number as u32),
        category: TextId(number as u32 % 2),
        compile_context: TextId(number as u32 / 7 % 2),
        user_metadata: TextId(if number < 500 { 0 } else { number as u32 }),
        pool: PoolId(number as u32 / 11 % 3),
        action: ACTIONS[number as usize % ACTIONS.len()],
        entered: number as u8,
    };
    (0..1000).map(entry).collect()
}

#[test]
fn every_field_comes_back() {
    let wanted = entries();
    let packed: Entries = wanted.iter().copied().collect();
    assert_eq!(packed.iter().collect::<Vec<_>>(), wanted);
    assert!(packed.iter().rev().eq(wanted.iter().rev().copied()));
    assert!(packed.range(7..20).eq(wanted[7..20].iter().copied()));
    assert_eq!((packed.first(), packed.last()), (Some(wanted[0]), wanted.last().copied()));
    assert_eq!((packed.get(999), packed.get(1000)), (Some(wanted[999]), None));
    let is_before = |entry: &Entry| entry.stack.0 < 321;
    assert_eq!(packed.partition_point(is_before), 321);
}

#[test]
fn entries_are_replaced_and_merged() {
    let wanted = entries();
    let mut packed: Entries = wanted.iter().copied().collect();
    packed.set(3, wanted[900]);
    packed.map_stacks(|stack| StackId(stack.0 + 1));
    let next = |entry: Entry| Entry { stack: StackId(entry.stack.0 + 1), ..entry };
    assert_eq!((packed.at(3), packed.at(4)), (next(wanted[900]), next(wanted[4])));
    // Pairs of the same address become one.
    let mut packed: Entries = wanted.iter().copied().collect();
    packed.merge(|first, second| {
        (first.address == second.address).then_some(Entry { action: Action::Free, ..first })
    });
    let pairs = wanted.chunks(2).map(|pair| Entry { action: Action::Free, ..pair[0] });
    assert!(packed.iter().eq(pairs));
}

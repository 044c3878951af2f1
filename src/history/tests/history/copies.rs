//! Copies made while what is copied changes: they are of the moment at which they began.

use cachealloc_history::{
    Action, CHUNK_ROWS, Entry, EntryList, HOST_DEVICE, PackedEntries, Ring, RingCopy, RingEntries,
    RingMerge, Rows, RowsCopy, StackId,
};
use proptest::prelude::*;

prop_compose! {
    fn numbers()(near in 0u64..5, any in any::<u64>(), which in 0u8..3) -> u64 {
        match which {
            0 => near,
            1 => near << 9,
            _ => any,
        }
    }
}

prop_compose! {
    fn entries_of_any_kind()(
        time_ns in numbers(),
        address in numbers(),
        bytes in numbers(),
        stream in numbers(),
        stack in any::<u32>(),
        action in 0usize..10,
        entered in 0u8..3,
        range in 0u16..3,
    ) -> Entry {
        let (stack, action) = (StackId(stack), Action::ALL[action]);
        Entry { time_ns, address, bytes, stream, stack, action, entered, range }
    }
}

proptest! {
    #[test]
    fn packed_entries_read_as_they_were(
        entries in prop::collection::vec(entries_of_any_kind(), 0..5_000),
    ) {
        let packed: PackedEntries = entries.iter().collect();
        prop_assert_eq!(packed.len(), entries.len());
        prop_assert_eq!(packed.iter().collect::<Vec<_>>(), entries);
    }

    #[test]
    fn ring_is_copied_as_of_the_cut(
        entries_max in 1usize..10_000,
        before in 0usize..20_000,
        meanwhile in prop::collection::vec(0usize..6_000, 8),
    ) {
        let mut ring = Ring::new(entries_max);
        let mut count = 0;
        let push = |ring: &mut Ring, count: &mut u64| {
            *count += 1;
            ring.push(entry(*count));
        };
        (0..before).for_each(|_| push(&mut ring, &mut count));
        let at_cut: Vec<Entry> = ring.iter().copied().collect();
        let mut copy = RingCopy::begin(&ring);
        for more in meanwhile {
            (0..more).for_each(|_| push(&mut ring, &mut count));
            if !copy.pack() {
                break;
            }
            copy.copy(Some(&ring));
        }
        while copy.pack() {
            copy.copy(Some(&ring));
        }
        let RingEntries { entries, dropped_count, .. } = copy.finish();
        let entries: Vec<Entry> = entries.iter().collect();
        prop_assert!(at_cut.ends_with(&entries), "{} of {}", entries.len(), at_cut.len());
        prop_assert_eq!(dropped_count as usize + entries.len(), before);
    }

    #[test]
    fn rows_are_copied_as_of_the_cut(
        len in 0usize..20_000,
        changes in prop::collection::vec(prop::collection::vec(0usize..25_000, 0..50), 12),
    ) {
        let mut rows: Rows<u64> = Rows::new();
        prop_assert!(rows.grow_to(len));
        (0..len).for_each(|index| *rows.get_mut(index).unwrap() = index as u64);
        let mut copy = RowsCopy::begin(&rows);
        let (mut some, mut all) = (RowsCopy::room(), Vec::new());
        let mut changes = changes.into_iter();
        loop {
            for index in changes.next().unwrap_or_default() {
                prop_assert!(copy.keep(&rows, index));
                prop_assert!(rows.grow_to(index + 1));
                *rows.get_mut(index).unwrap() = u64::MAX;
            }
            if !copy.copy(&rows, &mut some) {
                break;
            }
            all.append(&mut some);
        }
        prop_assert_eq!(all, (0..len as u64).collect::<Vec<_>>());
    }

    /// What a merge gives is what sorting all entries in one list would give.
    #[test]
    fn entries_of_several_rings_are_merged(
        rings in prop::collection::vec((prop::collection::vec(1u64..40, 0..60), 0u64..3), 1..5),
        from_start in any::<bool>(),
        entries_max in 0u64..200,
    ) {
        let mut merge = RingMerge::new(from_start);
        let (mut all, mut oldest_ns, mut dropped) = (Vec::new(), 0, 0);
        for (steps, dropped_count) in rings {
            let mut time_ns = 0;
            let made = steps.iter().map(|step| {
                time_ns += step;
                let action = if step % 3 == 0 { Action::Free } else { Action::Alloc };
                Entry { action, ..entry(time_ns) }
            });
            let entries: Vec<Entry> = made.collect();
            if let Some(first) = entries.first()
                && (dropped_count > 0 || !from_start)
            {
                oldest_ns = first.time_ns.max(oldest_ns);
            }
            dropped += dropped_count;
            let entries_packed = entries.iter().collect();
            let ring = RingEntries { entries: entries_packed, dropped_count, lost_until_ns: 0 };
            merge.add(HOST_DEVICE, ring);
            all.extend(entries);
        }
        all.sort_by_key(|entry| entry.time_ns);
        let older = all.partition_point(|entry| entry.time_ns < oldest_ns);
        all.drain(..older);
        dropped += if from_start { older as u64 } else { 0 };
        let mut room = entries_max.max(1);
        let mut newest = Vec::new();
        for mut entry in all.iter().rev().copied() {
            match (entry.action, room) {
                (_, 0) => break,
                (Action::Free, 1) => (entry.action, room) = (Action::FreeCompleted, 0),
                (Action::Free, _) => room -= 2,
                _ => room -= 1,
            }
            newest.insert(0, entry);
        }
        dropped += (all.len() - newest.len()) as u64;
        let (_, merged) = merge.finish(entries_max);
        prop_assert_eq!(merged.entries.count(), newest.len());
        prop_assert_eq!(merged.dropped_count, dropped);
        prop_assert_eq!(merged.unpacked().entries, newest);
    }
}

/// A history has no gap: what was copied before an entry that is lost is lost as well.
#[test]
fn overwritten_entries_count_as_dropped() {
    let len = 3 * CHUNK_ROWS as u64;
    let mut ring = Ring::new(len as usize);
    (1..=len).for_each(|number| _ = ring.push(entry(number)));
    let mut copy = RingCopy::begin(&ring);
    assert!(copy.pack(), "two chunks are left");
    let overwritten = CHUNK_ROWS as u64 + 10;
    (1..=overwritten).for_each(|number| _ = ring.push(entry(len + number)));
    while copy.pack() {
        copy.copy(Some(&ring));
    }
    let copied = copy.finish();
    assert_eq!(copied.dropped_count, overwritten);
    let times: Vec<u64> = copied.entries.iter().map(|entry| entry.time_ns).collect();
    assert_eq!(times, (overwritten + 1..=len).collect::<Vec<_>>());
}

#[test]
fn entries_of_a_cleared_ring_are_lost() {
    let len = 2 * CHUNK_ROWS as u64;
    let mut ring = Ring::new(len as usize);
    (1..=len).for_each(|number| _ = ring.push(entry(number)));
    let mut copy = RingCopy::begin(&ring);
    assert!(copy.pack());
    ring.clear();
    (1..=len).for_each(|number| _ = ring.push(entry(len + number)));
    copy.copy(Some(&ring));
    let copied = copy.finish();
    assert_eq!((copied.entries.len(), copied.dropped_count), (0, len));
    assert_eq!(copied.lost_until_ns, len + 1);
}

/// The usual entries take less than half of their size.
#[test]
fn packed_entries_are_small() {
    const COUNT: u64 = 100_000;
    let mut packed = PackedEntries::default();
    for number in 0..COUNT {
        let address = 0x7f00_0000_0000 + number * 7_919 % 4_096 * 20_480;
        let (stack, action) = (StackId(number as u32 % 90), Action::ALL[number as usize % 4]);
        let bytes = 1_000 + number * 31 % 10_000_000;
        packed.push(&Entry { address, bytes, stack, action, ..entry(number * 700) });
    }
    assert!(packed.memory_bytes() <= 16 * COUNT as usize, "{}", packed.memory_bytes());
}

fn entry(time_ns: u64) -> Entry {
    Entry { time_ns, address: time_ns << 9, bytes: 1, ..Entry::default() }
}

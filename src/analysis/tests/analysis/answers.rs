//! Checks the answers about random histories against naive ones: entries undone one by one from the
//! end, and everything counted again.

use std::collections::{BTreeMap, BTreeSet};

use cachealloc_analysis::model::{Action, BlockState, Device, Entry, Snapshot, StackId};
use cachealloc_analysis::waste::{Pattern, Waste};
use cachealloc_analysis::{
    Lifetime, Lifetimes, Moment, OTHERS_BETWEEN_MAX, Usage, When, by_group, reserved_over_time,
    sites, telling_moments, temporary,
};

use crate::made::{self, random::Random};

/// Returns the blocks that the program holds, by address, at every moment from the last to the
/// first.
fn undone(device: &Device) -> Vec<(Moment, BTreeMap<u64, u64>)> {
    let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
    let live = blocks.filter(|block| block.state == BlockState::Allocated);
    let mut held: BTreeMap<u64, u64> =
        live.map(|block| (block.address, block.requested_bytes)).collect();
    let mut moments = vec![(device.entries.len() as Moment, held.clone())];
    for (moment, entry) in device.entries.iter().enumerate().rev() {
        match entry.action {
            Action::Alloc => _ = held.remove(&entry.address),
            Action::Free | Action::FreeRequested => _ = held.insert(entry.address, entry.bytes),
            _ => {}
        }
        moments.push((moment as Moment, held.clone()));
    }
    moments
}

fn snapshots() -> impl Iterator<Item = (u64, Snapshot)> {
    (0..150).map(|seed| (seed, made::read(&made::pickled(&made::history(seed, seed % 60 * 5)))))
}

#[test]
fn live_blocks_at_every_moment() {
    let mut late = 0;
    for (seed, snapshot) in snapshots() {
        for device in &snapshot.devices {
            let lifetimes = Lifetimes::of(device);
            assert_eq!(lifetimes.disagreements_count, 0, "seed {seed}");
            let bytes = lifetimes.bytes_over_time();
            late += lifetimes.all.iter().filter(|life| !life.begin_known).count();
            for (moment, held) in undone(device) {
                let live: BTreeMap<u64, u64> =
                    lifetimes.live_at(moment).map(|life| (life.address, life.bytes)).collect();
                assert_eq!(live, held, "seed {seed}, moment {moment}");
                assert_eq!(bytes[moment as usize], held.values().sum::<u64>());
            }
            let peak = *bytes.iter().max().expect("one at least");
            assert_eq!(lifetimes.peak_bytes, peak);
            assert_eq!(bytes.iter().position(|&it| it == peak), Some(lifetimes.peak as usize));
            let usage = Usage::of_all(&device.segments);
            assert_eq!(lifetimes.end_bytes, usage.requested_bytes, "seed {seed}");
        }
    }
    assert!(late > 100, "some histories began late: {late}");
}

/// The entries of a lifetime belong to it and agree with it.
#[test]
fn lives_are_their_entries() {
    for (seed, snapshot) in snapshots() {
        for device in &snapshot.devices {
            let mut told = BTreeSet::new();
            for life in &Lifetimes::of(device).all {
                let of =
                    |index: Option<usize>| index.map(|index| (index, device.entries.at(index)));
                if let Some((index, entry)) = of(life.allocated_by()) {
                    let of_life = (Action::Alloc, life.stack, life.category, life.stream);
                    assert_eq!((entry.action, entry.stack, entry.category, entry.stream), of_life);
                    assert_eq!((entry.address, entry.bytes), (life.address, life.bytes));
                    told.insert(index);
                }
                if let Some((index, entry)) = of(life.freed_by()) {
                    assert!(matches!(entry.action, Action::Free | Action::FreeRequested));
                    assert_eq!((entry.address, entry.bytes), (life.address, life.bytes));
                    told.insert(index);
                }
                assert!(
                    life.begin <= life.end && life.end <= life.reusable,
                    "seed {seed}: {life:?}"
                );
            }
            let is_of_block = |entry: &Entry| {
                matches!(entry.action, Action::Alloc | Action::Free | Action::FreeRequested)
            };
            let all = device.entries.iter().enumerate().filter(|(_, entry)| is_of_block(entry));
            assert_eq!(told, all.map(|(index, _)| index).collect(), "seed {seed}");
        }
    }
}

/// A recording that was off for a while: the blocks live at the end are still those in the
/// segments.
#[test]
fn gaps() {
    let mut disagreements = 0;
    for (seed, mut snapshot) in snapshots() {
        let mut random = Random(seed);
        for device in &mut snapshot.devices {
            let count = device.entries.len() as u64;
            // A history may have lost everything.
            let (from, to) = (random.below(1 + count), random.below(1 + count));
            made::edit(&mut device.entries, |all| {
                all.drain(from.min(to) as usize..from.max(to) as usize);
            });
            let lifetimes = Lifetimes::of(device);
            disagreements += lifetimes.disagreements_count;
            let end: BTreeMap<u64, u64> =
                lifetimes.live_at(lifetimes.last).map(|life| (life.address, life.bytes)).collect();
            assert_eq!(end, undone(device)[0].1, "seed {seed}");
            assert_eq!(lifetimes.end_bytes, end.values().sum::<u64>(), "seed {seed}");
            // No two lifetimes share a place at the same time, and a stack always belongs to the
            // same library.
            let mut places = BTreeMap::new();
            let mut by_time: Vec<&Lifetime> = lifetimes.all.iter().collect();
            by_time.sort_by_key(|life| (life.begin, life.reusable));
            for life in by_time {
                let since = places.insert(life.address, life.reusable).unwrap_or(0);
                assert!(since <= life.begin, "seed {seed}: {life:?}");
                let is_of_stack = |it: &Entry| {
                    it.action == Action::Alloc && it.stack == life.stack && !life.stack.is_none()
                };
                if let Some(entry) = device.entries.iter().find(is_of_stack) {
                    assert_eq!(entry.category, life.category, "seed {seed}: {life:?}");
                }
            }
            let reserved = reserved_over_time(device);
            assert!(
                reserved.iter().all(|&bytes| bytes < 1 << 40),
                "seed {seed}: less than nothing"
            );
        }
    }
    assert!(disagreements > 100, "gaps are noticed: {disagreements}");
}

#[test]
fn reserved_memory_at_every_moment() {
    for (seed, snapshot) in snapshots() {
        for device in &snapshot.devices {
            let reserved = reserved_over_time(device);
            let held = Lifetimes::of(device).bytes_over_time();
            let segments: u64 = device.segments.iter().map(|segment| segment.bytes).sum();
            assert_eq!(reserved.last(), Some(&segments), "seed {seed}");
            for (index, entry) in device.entries.iter().enumerate() {
                let change = match entry.action {
                    Action::SegmentAlloc | Action::SegmentMap => entry.bytes as i64,
                    Action::SegmentFree | Action::SegmentUnmap => -(entry.bytes as i64),
                    _ => 0,
                };
                assert_eq!(reserved[index + 1] as i64 - reserved[index] as i64, change);
            }
            assert!(held.iter().zip(&reserved).all(|(held, reserved)| held <= reserved));
        }
    }
}

/// Checks every total of each stack against a count of the entries alone.
#[test]
fn totals_of_sites() {
    let mut temporary_count = 0;
    for (seed, snapshot) in snapshots() {
        let from_start = snapshot.settings.dropped == cachealloc_analysis::model::Dropped::Count(0);
        for device in &snapshot.devices {
            let lifetimes = Lifetimes::of(device);
            let at = Random(seed).below(u64::from(lifetimes.last) + 1) as Moment;
            let all = sites(device, &lifetimes, at);
            let sum = |of: fn(&cachealloc_analysis::Totals) -> u64| -> u64 {
                all.iter().map(|site| of(&site.totals)).sum()
            };
            let held = lifetimes.bytes_over_time();
            assert_eq!(sum(|totals| totals.live_bytes), held[at as usize], "seed {seed}");
            assert_eq!(sum(|totals| totals.peak_bytes), lifetimes.peak_bytes);
            assert_eq!(sum(|totals| totals.end_bytes), lifetimes.end_bytes);
            for site in &all {
                let allocs: Vec<usize> = (0..device.entries.len())
                    .filter(|&index| {
                        let entry = device.entries.at(index);
                        entry.action == Action::Alloc
                            && (entry.stack, entry.category) == (site.stack, site.category)
                    })
                    .collect();
                let frees = allocs.iter().map(|&index| naive_free(device, index));
                let frees: Vec<Option<usize>> = frees.collect();
                let totals = &site.totals;
                assert_eq!(totals.allocated_count, allocs.len() as u64, "seed {seed}");
                let bytes = |&index: &usize| device.entries.at(index).bytes;
                assert_eq!(totals.allocated_bytes, allocs.iter().map(bytes).sum::<u64>());
                let whole: Vec<u64> = allocs
                    .iter()
                    .zip(&frees)
                    .filter_map(|(&from, to)| {
                        Some(device.entries.at((*to)?).time_us - device.entries.at(from).time_us)
                    })
                    .collect();
                assert_eq!(totals.whole_count, whole.len() as u64);
                assert_eq!(totals.whole_us, whole.iter().sum::<u64>());
                let short = allocs.iter().zip(&frees).filter(|&(&from, &to)| {
                    to.is_some_and(|to| {
                        let between = device.entries.range(from + 1..to);
                        let others = between.filter(|it| it.action == Action::Alloc);
                        others.count() as u32 <= OTHERS_BETWEEN_MAX
                    })
                });
                assert_eq!(totals.temporary_count, short.count() as u64, "seed {seed}");
                temporary_count += totals.temporary_count;
                let is_live = |moment: Moment| {
                    allocs.iter().zip(&frees).filter(move |&(&from, &to)| {
                        from < moment as usize && to.is_none_or(|to| to >= moment as usize)
                    })
                };
                if from_start && !site.stack.is_none() {
                    let live = |moment| is_live(moment).map(|(from, _)| bytes(from)).sum::<u64>();
                    assert_eq!(totals.live_bytes, live(at), "seed {seed}");
                    assert_eq!(totals.peak_bytes, live(lifetimes.peak));
                    assert_eq!(totals.end_bytes, live(lifetimes.last));
                    assert_eq!(totals.end_count, is_live(lifetimes.last).count() as u64);
                }
            }
        }
    }
    assert!(temporary_count > 100, "some were temporary: {temporary_count}");
}

/// Returns the index of the entry that frees the block that this one allocates.
fn naive_free(device: &Device, alloc: usize) -> Option<usize> {
    let address = device.entries.at(alloc).address;
    (alloc + 1..device.entries.len()).find(|&index| {
        let entry = device.entries.at(index);
        entry.address == address && matches!(entry.action, Action::Free | Action::FreeRequested)
    })
}

#[test]
fn groups_over_time() {
    for (seed, snapshot) in snapshots() {
        for device in &snapshot.devices {
            let lifetimes = Lifetimes::of(device);
            let held = lifetimes.bytes_over_time();
            let moments = telling_moments(&held, 7);
            assert!(moments.len() <= 2 + 2 * 7 && moments.is_sorted_by(|a, b| a < b));
            assert!(moments.contains(&0) && moments.contains(&lifetimes.last), "seed {seed}");
            assert!(moments.contains(&lifetimes.peak), "seed {seed}: the peak is shown");
            let groups: Vec<usize> =
                lifetimes.all.iter().map(|it| it.stack.0 as usize % 3).collect();
            let series = by_group(&lifetimes, &groups, 3, &moments);
            for (index, &moment) in moments.iter().enumerate() {
                for (group, values) in series.iter().enumerate() {
                    let live =
                        lifetimes.live_at(moment).filter(|it| it.stack.0 as usize % 3 == group);
                    assert_eq!(values[index], live.map(|it| it.bytes).sum::<u64>(), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn segments_add_up() {
    let mut fragmented = 0;
    for (seed, snapshot) in snapshots() {
        for segment in snapshot.devices.iter().flat_map(|device| &device.segments) {
            let usage = Usage::of(segment);
            let blocks = usage.allocated_bytes + usage.pending_bytes + usage.free_bytes;
            assert_eq!((usage.reserved_bytes, segment.bytes), (blocks, blocks), "seed {seed}");
            let free = segment.blocks.iter().filter(|block| block.state == BlockState::Free);
            assert_eq!(usage.free_bytes_max, free.clone().map(|it| it.bytes).max().unwrap_or(0));
            assert_eq!(usage.free_count, free.count() as u64);
            let is_free = usage.free_bytes == segment.bytes;
            assert_eq!(usage.stuck_bytes, if is_free { 0 } else { usage.free_bytes });
            let share = usage.fragmentation();
            assert!((0.0..1.0).contains(&share));
            assert_eq!(share > 0.0, usage.free_count > 1);
            fragmented += u32::from(share > 0.0);
        }
    }
    assert!(fragmented > 10);
}

/// One program with an instance of each pattern.
#[test]
fn waste_is_found() {
    let entry = |action, address, bytes| Entry {
        time_us: 0,
        address,
        bytes,
        stream: 0,
        stack: StackId::NONE,
        category: Default::default(),
        compile_context: Default::default(),
        user_metadata: Default::default(),
        pool: Default::default(),
        action,
        entered: 0,
    };
    let alloc = |address, bytes| entry(Action::Alloc, address, bytes);
    let free = |address, bytes| entry(Action::Free, address, bytes);
    let mut entries = vec![alloc(1, 10), alloc(2, 10)]; // early
    entries.extend([alloc(3, 5), free(3, 5), alloc(3, 5), free(3, 5)]); // temporary
    entries.extend([alloc(4, 100), alloc(5, 7), alloc(6, 7), alloc(7, 1)]); // 7 is the peak
    entries.extend([free(6, 7), free(5, 7), free(1, 10), alloc(8, 20), free(8, 20)]);
    entries.extend([free(4, 100), free(2, 10)]); // late; 7 leaks
    let device = Device { entries: entries.into_iter().collect(), segments: Vec::new() };
    // The segments would contain block 7.
    let block = cachealloc_analysis::model::Block {
        address: 7,
        bytes: 1,
        requested_bytes: 1,
        state: BlockState::Allocated,
        stack: StackId::NONE,
        category: Default::default(),
    };
    let segment = cachealloc_analysis::model::Segment {
        address: 7,
        bytes: 1,
        stream: 0,
        small: false,
        pool: Default::default(),
        expandable: false,
        stack: StackId::NONE,
        blocks: vec![block],
    };
    let device = Device { segments: vec![segment], ..device };
    let lifetimes = Lifetimes::of(&device);
    assert_eq!((lifetimes.peak_bytes, lifetimes.end_bytes), (135, 1));
    let waste = Waste::of(&device, &lifetimes);
    let found = |pattern| {
        let shows =
            lifetimes.all.iter().enumerate().filter(|(i, life)| waste.shows(pattern, *i, life));
        shows.map(|(_, life)| life.address).collect::<Vec<_>>()
    };
    assert_eq!(found(Pattern::Leak), [7]);
    assert_eq!(found(Pattern::Early), [1, 2]);
    assert_eq!(found(Pattern::Late), [2, 4]);
    // Only 7 comes between the begin of 6 and its end.
    assert_eq!(found(Pattern::Temporary), [3, 3, 6, 8]);
    // Blocks that make up the peak are needed then.
    let entries = [alloc(1, 10), alloc(2, 10), free(2, 10), free(1, 10)];
    let short = Device { entries: entries.into_iter().collect(), segments: Vec::new() };
    let short_lives = Lifetimes::of(&short);
    let waste = Waste::of(&short, &short_lives);
    let early = short_lives.all.iter().enumerate();
    let early = early.filter(|(index, life)| waste.shows(Pattern::Early, *index, life));
    assert_eq!(early.map(|(_, life)| life.address).collect::<Vec<_>>(), [1]);
    assert_eq!(temporary(&device, &lifetimes).iter().filter(|it| **it).count(), 4);
}

#[test]
fn moments_by_name() {
    for (text, wanted) in [
        ("end", Some(When::End)),
        ("peak", Some(When::Peak)),
        ("oom", Some(When::Shortage)),
        ("#12", Some(When::Entry(12))),
        ("2.5s", Some(When::AfterUs(2_500_000))),
        ("2.5", Some(When::AfterUs(2_500_000))),
        ("300ms", Some(When::AfterUs(300_000))),
        ("7us", Some(When::AfterUs(7))),
        ("", None),
        ("#", None),
        ("-1s", None),
        ("nan", None),
        ("infs", None),
        ("s", None),
        ("END", None),
    ] {
        assert_eq!(When::parse(text), wanted, "{text:?}");
    }
    let (_, snapshot) = snapshots().nth(59).expect("there are more");
    let device = &snapshot.devices[0];
    let lifetimes = Lifetimes::of(device);
    let resolve = |when: When| when.resolve(device, &lifetimes);
    assert_eq!(resolve(When::End), Some(device.entries.len() as Moment));
    assert_eq!(resolve(When::Peak), Some(lifetimes.peak));
    let refused = device.entries.iter().rposition(|it| it.action == Action::OutOfMemory);
    assert_eq!(resolve(When::Shortage), refused.map(|index| index as Moment));
    assert_eq!(When::Shortage.resolve(&Device::default(), &Lifetimes::default()), None);
    assert_eq!(resolve(When::Entry(5)), Some(5));
    assert_eq!(resolve(When::Entry(u64::MAX)), Some(lifetimes.last));
    assert_eq!(resolve(When::AfterUs(u64::MAX)), Some(lifetimes.last));
    let first_us = device.entries.at(0).time_us;
    let us = device.entries.at(7).time_us - first_us;
    let after = resolve(When::AfterUs(us)).expect("it is there") as usize;
    assert!(device.entries.at(after - 1).time_us == first_us + us && after >= 8);
    assert!(device.entries.at(after).time_us > first_us + us);
}

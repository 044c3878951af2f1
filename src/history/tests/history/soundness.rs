//! The check accepts sound snapshots, and finds each known way to break one.

use cachealloc_history::{
    Action, Block, BlockState, Entry, HOST_DEVICE, Segment, Snapshot, StackId,
};
use proptest::prelude::*;

use crate::random;

proptest! {
    #[test]
    fn allocator_histories_are_sound(seed: u64, steps in 0u64..300) {
        let snapshot = random::snapshot(seed, steps);
        prop_assert_eq!(snapshot.check(), Ok(()));
    }

    /// Every omission or change of an entry that a replay needs is found.
    #[test]
    fn a_lost_entry_is_found(seed: u64, at: prop::sample::Index) {
        let mut snapshot = random::snapshot(seed, 200);
        for device in &mut snapshot.devices {
            device.recorded_from_start = true;
        }
        let entries = &mut snapshot.devices.last_mut().unwrap().entries;
        // A device may have lost all of them.
        prop_assume!(!entries.is_empty());
        let index = at.index(entries.len());
        let action = entries.remove(index).action;
        let last_dropped = snapshot.devices.last().unwrap().dropped_count > 0;
        let changes_nothing = matches!(action, Action::OutOfMemory | Action::Snapshot);
        if !last_dropped {
            prop_assert_eq!(snapshot.check().is_ok(), changes_nothing, "{:?}", action);
        }
    }
}

#[test]
fn the_empty_snapshot_is_sound() {
    assert_eq!(Snapshot::default().check(), Ok(()));
}

#[test]
fn every_breakage_is_found() {
    assert_eq!(small().check(), Ok(()));
    for Breakage { name, invariant, apply } in BREAKAGES {
        let mut snapshot = small();
        apply(&mut snapshot);
        let problem = snapshot.check().expect_err(name);
        assert_eq!(problem.invariant, *invariant, "{name}: {problem}");
    }
}

#[test]
fn problems_name_place_and_values() {
    let mut snapshot = small();
    snapshot.segments[0].blocks[1].address += 512;
    assert_eq!(
        snapshot.check().unwrap_err().to_string(),
        "S2: segment 0 at 0x1000000: block 1 is at 0x1000600, not 0x1000400"
    );
    let mut snapshot = small();
    snapshot.devices[0].entries[4].bytes = 700;
    assert_eq!(
        snapshot.check().unwrap_err().to_string(),
        "S7: device 0, entry 3 (Alloc at 0x1000400): 500 bytes, and 700 elsewhere"
    );
}

/// If entries are lost, the rest must still be undoable, but need not explain everything.
#[test]
fn dropped_entries_need_not_explain_everything() {
    for dropped in 0..=small().devices[0].entries.len() {
        let mut snapshot = small();
        snapshot.devices[0].entries.drain(..dropped);
        assert_eq!(snapshot.check().is_ok(), dropped == 0, "{dropped}");
        snapshot.devices[0].dropped_count = dropped as u64;
        assert_eq!(snapshot.check(), Ok(()), "{dropped}");
        snapshot.devices[0].dropped_count = 0;
        snapshot.devices[0].recorded_from_start = false;
        assert_eq!(snapshot.check(), Ok(()), "{dropped}");
    }
}

pub struct Breakage {
    pub name: &'static str,
    pub invariant: u8,
    pub apply: fn(&mut Snapshot),
}

const fn breakage(name: &'static str, invariant: u8, apply: fn(&mut Snapshot)) -> Breakage {
    Breakage { name, invariant, apply }
}

/// One entry for each known way to break a snapshot.
pub const BREAKAGES: &[Breakage] = &[
    breakage("segments out of order", 1, |snapshot| snapshot.segments.swap(0, 1)),
    breakage("segments overlap", 1, |snapshot| {
        snapshot.segments[0].bytes += 2 * SEGMENT_BYTES;
        snapshot.segments[0].blocks[2].bytes += 2 * SEGMENT_BYTES;
    }),
    breakage("one segment twice", 1, |snapshot| {
        let segment = snapshot.segments[0].clone();
        snapshot.segments.insert(0, segment);
    }),
    breakage("a gap between blocks", 2, |snapshot| {
        snapshot.segments[0].blocks[2].address += 512;
        snapshot.segments[0].blocks[2].bytes -= 512;
    }),
    breakage("blocks overlap", 2, |snapshot| snapshot.segments[0].blocks[0].bytes += 512),
    breakage("blocks end early", 2, |snapshot| {
        snapshot.segments[0].blocks.pop();
    }),
    breakage("a segment without blocks", 2, |snapshot| snapshot.segments[1].blocks.clear()),
    breakage("an empty block", 2, |snapshot| {
        let empty = block(BASE, 0, 0, BlockState::Free);
        snapshot.segments[0].blocks.insert(0, empty);
    }),
    breakage("more requested than there is", 3, |snapshot| {
        snapshot.segments[0].blocks[0].requested_bytes = 2000;
    }),
    breakage("a device without a list", 4, |snapshot| {
        snapshot.devices.truncate(1);
    }),
    breakage("time goes back", 5, |snapshot| snapshot.devices[0].entries[3].time_ns = 9_000),
    breakage("a hash as stream", 6, |snapshot| {
        snapshot.devices[0].entries[1].stream = 0xdead_beef_dead_beef;
    }),
    breakage("an id as segment's stream", 6, |snapshot| snapshot.segments[0].stream = 1 << 60),
    breakage("a free without its alloc", 7, |snapshot| {
        snapshot.devices[0].entries.remove(3);
    }),
    breakage("alloc at another address than the block", 7, |snapshot| {
        snapshot.devices[0].entries[1].address += 512;
    }),
    breakage("rounded bytes in the alloc", 7, |snapshot| {
        snapshot.devices[0].entries[1].bytes = 1024;
    }),
    breakage("rounded bytes in the free", 7, |snapshot| {
        snapshot.devices[0].entries[4].bytes = 512;
    }),
    breakage("a pending free of a block that is not pending", 7, |snapshot| {
        snapshot.segments[0].blocks[0].state = BlockState::Pending;
    }),
    breakage("free requested, and the block is allocated", 7, |snapshot| {
        snapshot.devices[0].entries[4].action = Action::FreeRequested;
    }),
    breakage("free completed without request", 7, |snapshot| {
        snapshot.devices[0].entries[4].action = Action::FreeCompleted;
    }),
    breakage("freed twice", 7, |snapshot| {
        let entry = snapshot.devices[0].entries[4];
        snapshot.devices[0].entries.insert(5, entry);
    }),
    breakage("the segment came after its block", 7, |snapshot| {
        snapshot.devices[0].entries.swap(0, 1);
        snapshot.devices[0].entries[0].time_ns = 1;
    }),
    breakage("a segment entry with other bytes", 7, |snapshot| {
        snapshot.devices[0].entries[0].bytes -= 512;
    }),
    breakage("memory in no segment", 7, |snapshot| {
        snapshot.devices[0].entries[4].address = 0x9000_0000;
    }),
    breakage("a map without a segment", 7, |snapshot| {
        snapshot.devices[0].entries[2].address = 0x9000_0000;
    }),
    breakage("unmapped under a live block", 7, |snapshot| {
        let mut entry = snapshot.devices[0].entries[0];
        (entry.action, entry.time_ns) = (Action::SegmentFree, 100_000);
        snapshot.devices[0].entries.push(entry);
    }),
    breakage("a live block that was never recorded", 7, |snapshot| {
        snapshot.segments[0].blocks[2].state = BlockState::Allocated;
    }),
    breakage("a live block of which nothing is recorded", 8, |snapshot| {
        snapshot.segments[2].blocks[0].state = BlockState::Allocated;
        snapshot.devices[1].entries.clear();
    }),
    breakage("pinned memory that was never recorded", 8, |snapshot| {
        snapshot.host.entries.clear();
    }),
    breakage("pinned memory freed and there", 7, |snapshot| {
        let (address, bytes) = (snapshot.host_segments[0].address, SEGMENT_BYTES);
        snapshot.host.entries.push(entry((90_000, &(Action::Free, address, bytes))));
    }),
    breakage("a segment that was never recorded", 8, |snapshot| {
        let mut segment = snapshot.segments[0].clone();
        segment.address += 4 * SEGMENT_BYTES;
        for block in &mut segment.blocks {
            block.address += 4 * SEGMENT_BYTES;
            block.state = BlockState::Free;
        }
        snapshot.segments.insert(2, segment);
    }),
];

const BASE: u64 = 0x100_0000;
const SEGMENT_BYTES: u64 = 1 << 20;

/// A segment with a live block, a freed one and free memory; an expandable segment; a second
/// device.
pub fn small() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let blocks = vec![
        block(BASE, 1024, 1000, BlockState::Allocated),
        block(BASE + 1024, 512, 0, BlockState::Free),
        block(BASE + 1536, SEGMENT_BYTES - 1536, 0, BlockState::Free),
    ];
    let mapped = BASE + 2 * SEGMENT_BYTES;
    snapshot.segments = vec![
        segment(0, BASE, false, blocks),
        segment(0, mapped, true, vec![block(mapped, SEGMENT_BYTES, 0, BlockState::Free)]),
        segment(1, BASE, false, vec![block(BASE, SEGMENT_BYTES, 0, BlockState::Free)]),
    ];
    let device = |entries: &[(Action, u64, u64)]| cachealloc_history::Device {
        entries: (10_000..).step_by(1000).zip(entries).map(entry).collect(),
        dropped_count: 0,
        recorded_from_start: true,
    };
    snapshot.devices = vec![
        device(&[
            (Action::SegmentAlloc, BASE, SEGMENT_BYTES),
            (Action::Alloc, BASE, 1000),
            (Action::SegmentMap, mapped, SEGMENT_BYTES),
            (Action::Alloc, BASE + 1024, 500),
            (Action::Free, BASE + 1024, 500),
            (Action::OutOfMemory, 77, 1 << 40),
        ]),
        device(&[(Action::SegmentAlloc, BASE, SEGMENT_BYTES)]),
    ];
    let pinned = BASE + 8 * SEGMENT_BYTES;
    let blocks = vec![block(pinned, SEGMENT_BYTES, SEGMENT_BYTES, BlockState::Allocated)];
    snapshot.host_segments = vec![segment(HOST_DEVICE, pinned, false, blocks)];
    snapshot.host = device(&[
        (Action::SegmentAlloc, pinned, SEGMENT_BYTES),
        (Action::Alloc, pinned, SEGMENT_BYTES),
    ]);
    snapshot.clock = cachealloc_history::Clock { time_ns: 20_000, epoch_us: 1_790_000_000_000_000 };
    snapshot
}

fn entry((time_ns, &(action, address, bytes)): (u64, &(Action, u64, u64))) -> Entry {
    Entry { time_ns, address, bytes, stream: 0, stack: StackId::NONE, action, entered: 0, range: 0 }
}

fn block(address: u64, bytes: u64, requested_bytes: u64, state: BlockState) -> Block {
    Block { address, bytes, requested_bytes, state, stack: StackId::NONE }
}

fn segment(device: u32, address: u64, expandable: bool, blocks: Vec<Block>) -> Segment {
    Segment {
        device,
        address,
        bytes: SEGMENT_BYTES,
        stream: 0,
        kind: cachealloc_history::PoolKind::Large,
        pool_id: (0, 0),
        pool_since_ns: None,
        expandable,
        stack: StackId::NONE,
        blocks,
    }
}

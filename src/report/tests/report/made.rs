//! Small snapshots, written down by hand.

use cachealloc_analysis::model::{
    Action, Block, BlockState, Device, Dropped, Entry, Frame, PoolId, Segment, Snapshot, StackId,
    TextId,
};
use cachealloc_report::Input;

pub const MIB: u64 = 1 << 20;
const BEGIN_US: u64 = 1_700_000_000_000_000;

/// A snapshot of one device that grows entry by entry, ten microseconds apart.
pub struct Made {
    pub snapshot: Snapshot,
}

impl Made {
    pub fn new() -> Made {
        let mut snapshot = Snapshot { pools: vec![(0, 0), (1, 0)], ..Snapshot::default() };
        snapshot.devices.push(Device::default());
        snapshot.settings.ours.push(("version".to_string(), "0.1.0".to_string()));
        snapshot.settings.dropped = Dropped::Count(0);
        Made { snapshot }
    }

    /// Adds a stack of (name, file, line), innermost first.
    pub fn stack(&mut self, frames: &[(&str, &str, u64)]) -> StackId {
        let snapshot = &mut self.snapshot;
        let frames: Vec<_> = frames
            .iter()
            .map(|&(name, file, line)| {
                let (name, filename) = (snapshot.texts.add(name), snapshot.texts.add(file));
                snapshot.frames.add(Frame { name, filename, line })
            })
            .collect();
        snapshot.stacks.add(&frames)
    }

    pub fn entry(&mut self, action: Action, address: u64, bytes: u64, stack: StackId) {
        let category =
            if action == Action::Alloc { self.snapshot.texts.add("app") } else { TextId::EMPTY };
        let entries = &mut self.snapshot.devices[0].entries;
        entries.push(Entry {
            time_us: BEGIN_US + 10 * entries.len() as u64,
            address,
            bytes,
            stream: 0,
            stack,
            category,
            compile_context: TextId::EMPTY,
            user_metadata: TextId::EMPTY,
            pool: PoolId::DEFAULT,
            action,
            entered: 0,
        });
    }

    /// Sets the range of the last entry, and how much of it was newly entered.
    pub fn within(&mut self, range: &str, entered: u8) {
        let range = self.snapshot.texts.add(range);
        self.edit(|entries| {
            let last = entries.last_mut().expect("an entry");
            (last.user_metadata, last.entered) = (range, entered);
        });
    }

    /// Changes the entries as a list.
    pub fn edit(&mut self, change: impl FnOnce(&mut Vec<Entry>)) {
        edit(&mut self.snapshot, change);
    }

    /// Allocates a block that is never freed, in a separate segment.
    pub fn keep(&mut self, address: u64, bytes: u64, stack: StackId) {
        self.entry(Action::Alloc, address, bytes, stack);
        self.segment(address, 0, &[(bytes, BlockState::Allocated, stack)]);
    }

    /// Adds a segment of these blocks, one after the other: (bytes, state, stack).
    pub fn segment(&mut self, address: u64, pool: u32, blocks: &[(u64, BlockState, StackId)]) {
        let (mut at, category) = (address, TextId::EMPTY);
        let blocks: Vec<_> = blocks
            .iter()
            .map(|&(bytes, state, stack)| {
                let block =
                    Block { address: at, bytes, requested_bytes: bytes, state, stack, category };
                at += bytes;
                block
            })
            .collect();
        self.snapshot.devices[0].segments.push(Segment {
            address,
            bytes: at - address,
            stream: 0,
            small: false,
            pool: PoolId(pool),
            expandable: false,
            stack: StackId::NONE,
            blocks,
        });
    }

    pub fn input(self, name: &str) -> Input {
        Input { name: name.to_string(), snapshot: self.snapshot }
    }
}

/// Two call sites, one leak of 3 MiB, one request that could not be served, one block from before.
pub fn small() -> Made {
    let mut made = Made::new();
    let keeps = made.stack(&[
        ("cudaMalloc", "/usr/lib/libcudart.so.13", 4660),
        ("keep", "/home/user/app.cu", 12),
        ("main", "/home/user/app.cu", 40),
    ]);
    let passes =
        made.stack(&[("passing", "/home/user/app.py", 7), ("main", "/home/user/app.cu", 40)]);
    let none = StackId::NONE;
    let (base, other) = (0x7f00_0000_0000, 0x7f00_0000_0000 + 64 * MIB);
    made.entry(Action::SegmentAlloc, base, 20 * MIB, keeps);
    made.entry(Action::Alloc, base, 3 * MIB, keeps);
    made.within("load", 1);
    made.entry(Action::Alloc, base + 3 * MIB, 8 * MIB, passes);
    made.within("step/forward", 1);
    made.entry(Action::OutOfMemory, 5 * MIB, 4096 * MIB, passes);
    made.entry(Action::Free, base + 3 * MIB, 8 * MIB, none);
    made.within("step", 0);
    made.entry(Action::Alloc, base + 3 * MIB, MIB, passes);
    made.within("step", 1);
    made.entry(Action::FreeRequested, base + 3 * MIB, MIB, none);
    made.entry(Action::FreeCompleted, base + 3 * MIB, MIB, none);
    made.entry(Action::Free, other, 2 * MIB, none);
    made.segment(
        base,
        0,
        &[(3 * MIB, BlockState::Allocated, keeps), (17 * MIB, BlockState::Free, none)],
    );
    made.segment(other, 1, &[(2 * MIB, BlockState::Free, none)]);
    made
}

/// Changes the entries of the first device as a list.
pub fn edit(snapshot: &mut Snapshot, change: impl FnOnce(&mut Vec<Entry>)) {
    let entries = &mut snapshot.devices[0].entries;
    let mut all: Vec<Entry> = entries.iter().collect();
    change(&mut all);
    *entries = all.into_iter().collect();
}

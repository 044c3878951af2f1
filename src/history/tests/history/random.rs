//! Random snapshots that are sound by construction: a naive allocator runs for a while, records its
//! actions, and lists its memory at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use cachealloc_history::{
    Action, Block, BlockState, Clock, Describe, Device, Entry, Frame, HOST_DEVICE, PoolKind,
    Segment, Settings, Snapshot, StackId,
};

/// Numbers that are the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub const STACKS_COUNT: u64 = 40;
const PAGE_BYTES: u64 = 2 << 20;
const PAGES_COUNT: u64 = 8;

/// Returns a snapshot of one to three devices and often the host, with this many steps on each.
pub fn snapshot(seed: u64, steps: u64) -> Snapshot {
    let mut random = Random(seed);
    let mut snapshot = Snapshot {
        settings: settings(&mut random),
        clock: Clock { time_ns: 500_000, epoch_us: 1_790_000_000_000_000 },
        ..Snapshot::default()
    };
    for device in 0..1 + random.below(3) as u32 {
        let mut world = World::new(device, &mut random);
        for _ in 0..steps {
            world.step();
        }
        // Without a stack, so that there is always an entry of unknown category.
        world.note(Action::Snapshot, 0, 0, 0, StackId::NONE);
        snapshot.segments.extend(world.segments());
        snapshot.devices.push(Device {
            entries: world.entries,
            dropped_count: 0,
            recorded_from_start: true,
        });
    }
    if !random.one_in(3) {
        let mut world = World::new(HOST_DEVICE, &mut random);
        (0..steps).for_each(|_| world.step());
        snapshot.add(world.segments());
        snapshot.host =
            Device { entries: world.entries, dropped_count: 0, recorded_from_start: true };
        if random.one_in(3) {
            drop_oldest(&mut snapshot.host, &mut random);
        }
    }
    if random.one_in(3) {
        drop_oldest(&mut snapshot.devices[0], &mut random);
    }
    snapshot.sort();
    snapshot
}

fn drop_oldest(device: &mut Device, random: &mut Random) {
    let dropped = random.below(1 + device.entries.len() as u64);
    device.entries.drain(..dropped as usize);
    device.dropped_count = dropped;
}

fn settings(random: &mut Random) -> Settings {
    Settings {
        configuration: "backend:native,\"quoted\"\n".into(),
        split_bytes_max: random.one_in(2).then_some(1 << 40),
        garbage_collection_threshold: 0.8,
        expandable_segments: random.one_in(2),
        roundup_power2_divisions: std::array::from_fn(|_| 1 << random.below(4)),
        graph_capture_record_stream_reuse: random.one_in(2),
        entries_max: 1 << random.below(40),
        more: (0..random.below(4)).map(|n| (format!("option {n}"), "é".into())).collect(),
    }
}

struct World {
    device: u32,
    random: Random,
    entries: Vec<Entry>,
    areas: Vec<Area>,
    live: BTreeMap<u64, Block>,
    next_address: u64,
    time_ns: u64,
}

/// A segment, or a reserved range with some of its pages mapped.
struct Area {
    address: u64,
    stream: u64,
    expandable: bool,
    pool_id: (u64, u64),
    pool_since_ns: Option<u64>,
    stack: StackId,
    mapped: Vec<bool>,
}

impl Area {
    fn bytes(&self) -> u64 {
        self.mapped.len() as u64 * PAGE_BYTES
    }

    /// Returns the mapped ranges: start and end.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (page, _) in self.mapped.iter().enumerate().filter(|(_, mapped)| **mapped) {
            let first = self.address + page as u64 * PAGE_BYTES;
            match ranges.last_mut() {
                Some(last) if last.1 == first => last.1 += PAGE_BYTES,
                _ => ranges.push((first, first + PAGE_BYTES)),
            }
        }
        ranges
    }
}

impl World {
    fn new(device: u32, random: &mut Random) -> World {
        World {
            device,
            random: Random(random.next()),
            entries: Vec::new(),
            areas: Vec::new(),
            live: BTreeMap::new(),
            next_address: match device {
                HOST_DEVICE => 1 << 40,
                ordinal => 0x7f00_0000_0000 + u64::from(ordinal) * (1 << 36),
            },
            time_ns: 1 + random.below(1_000_000),
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0 => self.reserve(),
            1 => self.release(),
            2..4 => self.map(),
            4 => self.unmap(),
            5..12 => self.alloc(),
            12..18 => self.free(),
            18 => self.complete(),
            _ => {
                let (free, asked) = (self.random.below(1 << 37), self.random.below(1 << 40));
                let stack = self.stack();
                self.note(Action::OutOfMemory, free, asked, 0, stack);
            }
        }
    }

    fn reserve(&mut self) {
        let pages = 1 + self.random.below(PAGES_COUNT);
        let expandable = self.random.one_in(2);
        // Segments of any kind may be adjacent, but two adjacent expandable ones would be one.
        if expandable && self.areas.last().is_some_and(|last| last.expandable) {
            self.next_address += PAGE_BYTES;
        }
        let area = Area {
            address: self.next_address,
            stream: [0, 1, 2, 0x5555_1234_5670][self.random.below(4) as usize],
            expandable,
            pool_id: if self.random.one_in(4) { (0, 7) } else { (0, 0) },
            // Some become a pool's later.
            pool_since_ns: match self.areas.len() % 4 {
                0 => None,
                1 => Some(self.time_ns + 1_000_000),
                _ => Some(self.time_ns),
            },
            stack: self.stack(),
            mapped: vec![!expandable; pages as usize],
        };
        self.next_address += area.bytes();
        if !expandable {
            self.note(Action::SegmentAlloc, area.address, area.bytes(), area.stream, area.stack);
        }
        self.areas.push(area);
    }

    fn release(&mut self) {
        let Some(index) = self.any_area() else { return };
        let area = &self.areas[index];
        let (address, bytes, stream) = (area.address, area.bytes(), area.stream);
        if area.expandable || self.live_in(address, address + bytes) {
            return;
        }
        self.areas.remove(index);
        let stack = self.stack();
        self.note(Action::SegmentFree, address, bytes, stream, stack);
    }

    fn map(&mut self) {
        let Some((index, page)) = self.any_page() else { return };
        let area = &mut self.areas[index];
        if area.mapped[page] {
            return;
        }
        area.mapped[page] = true;
        let (address, stream) = (area.address + page as u64 * PAGE_BYTES, area.stream);
        let stack = self.stack();
        self.note(Action::SegmentMap, address, PAGE_BYTES, stream, stack);
    }

    fn unmap(&mut self) {
        let Some((index, page)) = self.any_page() else { return };
        let area = &self.areas[index];
        let (address, stream) = (area.address + page as u64 * PAGE_BYTES, area.stream);
        if !area.mapped[page] || self.live_in(address, address + PAGE_BYTES) {
            return;
        }
        self.areas[index].mapped[page] = false;
        let stack = self.stack();
        self.note(Action::SegmentUnmap, address, PAGE_BYTES, stream, stack);
    }

    fn alloc(&mut self) {
        let Some(index) = self.any_area() else { return };
        let requested_bytes = 1 + self.random.below(3 * PAGE_BYTES / 2);
        let bytes = requested_bytes.next_multiple_of(512);
        let area = &self.areas[index];
        let stream = area.stream;
        let fits = |(first, end): (u64, u64)| {
            let inside = self.live.range(first..end).map(|(_, block)| block.address + block.bytes);
            let starts = std::iter::once(first).chain(inside);
            starts.into_iter().find(|&at| at + bytes <= end && !self.live_in(at, at + bytes))
        };
        let Some(address) = area.ranges().into_iter().find_map(fits) else { return };
        let stack = self.stack();
        let state = BlockState::Allocated;
        self.live.insert(address, Block { address, bytes, requested_bytes, state, stack });
        self.note(Action::Alloc, address, requested_bytes, stream, stack);
    }

    fn free(&mut self) {
        let Some(block) = self.any_block(BlockState::Allocated) else { return };
        let action = if self.random.one_in(3) { Action::FreeRequested } else { Action::Free };
        let (address, requested_bytes, stack) =
            (block.address, block.requested_bytes, self.stack());
        if action == Action::FreeRequested {
            self.live.get_mut(&address).unwrap().state = BlockState::Pending;
        } else {
            self.live.remove(&address);
        }
        self.note(action, address, requested_bytes, 0, stack);
    }

    fn complete(&mut self) {
        let Some(block) = self.any_block(BlockState::Pending) else { return };
        self.live.remove(&block.address);
        self.note(Action::FreeCompleted, block.address, block.requested_bytes, 0, block.stack);
    }

    fn note(&mut self, action: Action, address: u64, bytes: u64, stream: u64, stack: StackId) {
        self.time_ns += 1 + self.random.below(5000);
        let time_ns = self.time_ns;
        self.entries.push(Entry {
            time_ns,
            address,
            bytes,
            stream,
            stack,
            action,
            entered: 0,
            range: 0,
        });
    }

    fn stack(&mut self) -> StackId {
        StackId(self.random.below(STACKS_COUNT) as u32)
    }

    fn any_area(&mut self) -> Option<usize> {
        let count = self.areas.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn any_page(&mut self) -> Option<(usize, usize)> {
        let index = self.any_area()?;
        let area = &self.areas[index];
        let (expandable, pages) = (area.expandable, area.mapped.len() as u64);
        expandable.then(|| (index, self.random.below(pages) as usize))
    }

    fn any_block(&mut self, state: BlockState) -> Option<Block> {
        let of_state: Vec<&Block> =
            self.live.values().filter(|block| block.state == state).collect();
        let count = of_state.len() as u64;
        (count > 0).then(|| of_state[self.random.below(count) as usize].clone())
    }

    fn live_in(&self, first: u64, end: u64) -> bool {
        let last = self.live.range(..end).next_back();
        last.is_some_and(|(_, block)| block.address + block.bytes > first)
    }

    fn segments(&self) -> Vec<Segment> {
        let of_area = |area: &Area| {
            let ranges = area.ranges().into_iter();
            ranges.map(|(first, end)| self.segment(area, first, end)).collect::<Vec<_>>()
        };
        self.areas.iter().flat_map(of_area).collect()
    }

    fn segment(&self, area: &Area, first: u64, end: u64) -> Segment {
        let mut blocks = Vec::new();
        let mut at = first;
        for block in self.live.range(first..end).map(|(_, block)| block) {
            blocks.extend(free_block(at, block.address));
            blocks.push(block.clone());
            at = block.address + block.bytes;
        }
        blocks.extend(free_block(at, end));
        Segment {
            device: self.device,
            address: first,
            bytes: end - first,
            stream: area.stream,
            kind: if end - first > PAGE_BYTES { PoolKind::Large } else { PoolKind::Small },
            pool_id: area.pool_id,
            pool_since_ns: area.pool_since_ns,
            expandable: area.expandable,
            stack: area.stack,
            blocks,
        }
    }
}

fn free_block(first: u64, end: u64) -> Option<Block> {
    (first < end).then(|| Block {
        address: first,
        bytes: end - first,
        requested_bytes: 0,
        state: BlockState::Free,
        stack: StackId::NONE,
    })
}

/// Text for the stacks, with everything that a name may contain. Some frames are shared by `Arc`,
/// some are only equal; some stacks have no frames.
pub struct Described(Vec<Arc<Frame>>);

impl Default for Described {
    fn default() -> Described {
        let names = ["main", "operator()<int, \"x\">", "größe", "漢字\t\u{1}\\", "😀", "", "??"];
        let frame = |(line, name): (u64, &&str)| Frame {
            name: name.to_string(),
            filename: format!("/a dir/{line}.py"),
            line: line * 40_000 + (line / 6) * (1 << 33),
        };
        Described((0..).zip(&names).map(|pair| Arc::new(frame(pair))).collect())
    }
}

impl Describe for Described {
    fn frames(&mut self, stack: StackId) -> Vec<Arc<Frame>> {
        assert!(!stack.is_none());
        let mut random = Random(stack.0.into());
        let count = random.below(8);
        let mut frame = || {
            let frame = &self.0[random.below(self.0.len() as u64) as usize];
            if random.one_in(2) { frame.clone() } else { Arc::new(Frame::clone(frame)) }
        };
        (0..count).map(|_| frame()).collect()
    }

    fn category(&mut self, stack: StackId) -> String {
        ["", "app", "cuBLAS", ""][stack.0 as usize % 4].into()
    }
}

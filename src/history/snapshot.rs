//! A snapshot: all segments, blocks and entries at one time. Taken by the holder of the locks, so
//! that no entry is newer than the segments, or older; everything after that is pure.

use crate::entry::{Entry, StackId};

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// One for each device of the process, at the index of its ordinal; unused ones are empty.
    pub devices: Vec<Device>,
    /// By device, then by address: see [`Snapshot::sort`].
    pub segments: Vec<Segment>,
    /// Memory of the host that devices reach: pinned, registered, or virtual memory there.
    pub host: Device,
    /// The same, by address; each of [`HOST_DEVICE`].
    pub host_segments: Vec<Segment>,
    /// Memory nodes of graphs: by device, then by address, without overlaps. The graph of each is its pool. It has memory of
    /// its own, or shares some with other graphs, once it was launched; no entry tells of it.
    pub graph_segments: Vec<Segment>,
    pub settings: Settings,
    pub clock: Clock,
    /// What the ranges of entries are called, by number; the first is [`NO_RANGE`](crate::NO_RANGE), and empty.
    pub ranges: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// How many entries were lost, always the oldest ones.
    pub dropped_count: u64,
    /// Whether recording began before the first allocation on this device. Then the entries, if
    /// none was dropped, tell how every block came to be.
    pub recorded_from_start: bool,
}

/// In the place of a device's ordinal: the host. PyTorch writes -1.
pub const HOST_DEVICE: u32 = u32::MAX;

/// A contiguous range obtained from the driver in one go; of expandable memory, one contiguous
/// range that is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The ordinal, or [`HOST_DEVICE`].
    pub device: u32,
    pub address: u64,
    pub bytes: u64,
    /// 0 is the default stream.
    pub stream: u64,
    pub kind: PoolKind,
    /// `(0, 0)` is the default pool; all others are private.
    pub pool_id: (u64, u64),
    /// From when on it is a private pool's; None: that is not known, or it is none's.
    pub pool_since_ns: Option<u64>,
    /// Expandable segments come and go by `SegmentMap` and `SegmentUnmap`, in parts; all others by
    /// `SegmentAlloc` and `SegmentFree`, whole, whatever the driver calls them.
    pub expandable: bool,
    pub stack: StackId,
    /// By address. They tile the segment.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolKind {
    Large,
    Small,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub address: u64,
    pub bytes: u64,
    pub requested_bytes: u64,
    pub state: BlockState,
    pub stack: StackId,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockState {
    /// Held by the program.
    Allocated,
    /// Freed, but a stream may still use it.
    Pending,
    Free,
}

impl BlockState {
    pub const fn is_active(self) -> bool {
        !matches!(self, BlockState::Free)
    }
}

/// What PyTorch's tools show as the settings of the allocator.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The configuration as the user wrote it.
    pub configuration: String,
    /// `None` is without limit.
    pub split_bytes_max: Option<u64>,
    pub garbage_collection_threshold: f64,
    pub expandable_segments: bool,
    /// For requests of 1 MiB to 2 MiB, of 2 MiB to 4 MiB, and so on; 0 rounds none.
    pub roundup_power2_divisions: [u64; 16],
    pub graph_capture_record_stream_reuse: bool,
    /// The bound of the ring of each device.
    pub entries_max: u64,
    /// Our own settings and counts, by name, as text.
    pub more: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            configuration: String::new(),
            split_bytes_max: None,
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            roundup_power2_divisions: [0; 16],
            graph_capture_record_stream_reuse: false,
            entries_max: 0,
            more: Vec::new(),
        }
    }
}

/// What time it was when: both clocks, read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// The clock of the entries.
    pub time_ns: u64,
    /// Microseconds since 1970.
    pub epoch_us: u64,
}

impl Clock {
    /// A time of an entry, in microseconds since 1970. Keeps the order of times.
    pub fn epoch_us_of(&self, time_ns: u64) -> u64 {
        let since_ns = i128::from(time_ns) - i128::from(self.time_ns);
        let epoch_us = i128::from(self.epoch_us) + since_ns.div_euclid(1000);
        u64::try_from(epoch_us.max(0)).unwrap_or(u64::MAX)
    }
}

impl Segment {
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// Bytes of the blocks that the program holds.
    pub fn allocated_bytes(&self) -> u64 {
        self.sum(|block| block.state == BlockState::Allocated, |block| block.bytes)
    }

    /// Allocated and pending free.
    pub fn active_bytes(&self) -> u64 {
        self.sum(|block| block.state.is_active(), |block| block.bytes)
    }

    /// What the program asked for, of the active blocks.
    pub fn requested_bytes(&self) -> u64 {
        self.sum(|block| block.state.is_active(), |block| block.requested_bytes)
    }

    fn sum(&self, counts: impl Fn(&Block) -> bool, bytes: impl Fn(&Block) -> u64) -> u64 {
        self.blocks.iter().filter(|block| counts(block)).map(bytes).sum()
    }
}

impl Snapshot {
    /// Puts each segment where those of its device are.
    pub fn add(&mut self, segments: impl IntoIterator<Item = Segment>) {
        for segment in segments {
            let of_host = segment.device == HOST_DEVICE;
            let all = if of_host { &mut self.host_segments } else { &mut self.segments };
            all.push(segment);
        }
    }

    /// Puts segments and their blocks into the order that the file has.
    pub fn sort(&mut self) {
        self.segments.sort_by_key(|segment| (segment.device, segment.address));
        self.host_segments.sort_by_key(|segment| segment.address);
        self.graph_segments.sort_by_key(|segment| (segment.device, segment.address));
        for segment in self.segments.iter_mut().chain(&mut self.host_segments) {
            segment.blocks.sort_by_key(|block| block.address);
        }
    }

    /// Those of all entries, blocks and segments, each as often as it is there.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let histories = self.devices.iter().chain([&self.host]);
        let entries = histories.flat_map(|device| &device.entries).map(|entry| entry.stack);
        let segments =
            || self.segments.iter().chain(&self.host_segments).chain(&self.graph_segments);
        let blocks = segments().flat_map(|segment| &segment.blocks).map(|block| block.stack);
        entries.chain(blocks).chain(segments().map(|segment| segment.stack))
    }

    /// All entries that were lost.
    pub fn dropped_count(&self) -> u64 {
        let of_devices = self.devices.iter().map(|device| device.dropped_count);
        of_devices.sum::<u64>() + self.host.dropped_count
    }
}

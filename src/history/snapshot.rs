//! A snapshot: all segments, blocks and entries at one time. The holder of the locks takes it, so
//! that entries and segments are of the same moment; everything after that is pure.

use crate::entry::{Entry, StackId};

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot<E = Vec<Entry>> {
    /// Devices of the process, each at the index of its ordinal; unused ones are empty.
    pub devices: Vec<Device<E>>,
    /// Segments by device, then by address; see [`Snapshot::sort`].
    pub segments: Vec<Segment>,
    /// Host memory that devices can access: pinned, registered, or virtual memory.
    pub host: Device<E>,
    /// Segments of the host by address; each has [`HOST_DEVICE`] as its device.
    pub host_segments: Vec<Segment>,
    /// Memory nodes of graphs: by device, then by address, without overlaps. The pool of each is
    /// its graph. A graph has memory, its own or shared with other graphs, once it was launched.
    /// Entries do not describe it.
    pub graph_segments: Vec<Segment>,
    pub settings: Settings,
    pub clock: Clock,
    /// Names of the ranges of entries, by number. The first, [`NO_RANGE`](crate::NO_RANGE), is
    /// empty.
    pub ranges: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Device<E = Vec<Entry>> {
    /// Entries, oldest first.
    pub entries: E,
    /// Number of entries lost, always the oldest ones.
    pub dropped_count: u64,
    /// Whether recording began before the first allocation on this device. Then the entries, if
    /// none was dropped, explain how every block came to be.
    pub recorded_from_start: bool,
}

/// The entries of a device.
pub trait EntryList {
    /// Returns the entries, oldest first.
    fn each(&self) -> impl Iterator<Item = Entry>;

    fn count(&self) -> usize;
}

impl EntryList for Vec<Entry> {
    fn each(&self) -> impl Iterator<Item = Entry> {
        self.iter().copied()
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// Stands for the host in place of a device's ordinal. PyTorch writes -1.
pub const HOST_DEVICE: u32 = u32::MAX;

/// A contiguous range obtained from the driver by one call; for expandable memory, one contiguous
/// mapped range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Ordinal of the device, or [`HOST_DEVICE`].
    pub device: u32,
    pub address: u64,
    pub bytes: u64,
    /// Stream; 0 is the default stream.
    pub stream: u64,
    pub kind: PoolKind,
    /// Pool: `(0, 0)` is the default pool; all others are private.
    pub pool_id: (u64, u64),
    /// Time since which it belongs to a private pool. `None` if that is unknown or it belongs to
    /// none.
    pub pool_since_ns: Option<u64>,
    /// Whether `SegmentMap` and `SegmentUnmap` add and remove the segment, in parts. All other
    /// segments are added and removed whole, by `SegmentAlloc` and `SegmentFree`, whatever the
    /// driver calls them.
    pub expandable: bool,
    pub stack: StackId,
    /// Blocks by address. They tile the segment.
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
    /// The program holds it.
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

/// Allocator settings that PyTorch's tools show.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Configuration as the user wrote it.
    pub configuration: String,
    /// `None` means no limit.
    pub split_bytes_max: Option<u64>,
    pub garbage_collection_threshold: f64,
    pub expandable_segments: bool,
    /// Divisions for requests of 1 MiB to 2 MiB, of 2 MiB to 4 MiB, and so on; 0 disables rounding.
    pub roundup_power2_divisions: [u64; 16],
    pub graph_capture_record_stream_reuse: bool,
    /// Bound of the ring of each device.
    pub entries_max: u64,
    /// Settings and counts of the library by name, as text.
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

/// Relates the two clocks, which were read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Clock of the entries.
    pub time_ns: u64,
    /// Microseconds since 1970.
    pub epoch_us: u64,
}

impl Clock {
    /// Converts a time of an entry to microseconds since 1970. Preserves the order of times.
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

    /// Bytes of blocks that are allocated or pending free.
    pub fn active_bytes(&self) -> u64 {
        self.sum(|block| block.state.is_active(), |block| block.bytes)
    }

    /// Bytes that the program requested for the active blocks.
    pub fn requested_bytes(&self) -> u64 {
        self.sum(|block| block.state.is_active(), |block| block.requested_bytes)
    }

    fn sum(&self, counts: impl Fn(&Block) -> bool, bytes: impl Fn(&Block) -> u64) -> u64 {
        self.blocks.iter().filter(|block| counts(block)).map(bytes).sum()
    }
}

impl<E: EntryList> Device<E> {
    /// Returns the device with a plain list of entries.
    pub fn unpacked(self) -> Device {
        let Device { entries, dropped_count, recorded_from_start } = self;
        Device { entries: entries.each().collect(), dropped_count, recorded_from_start }
    }
}

/// Returns the blocks of a segment and the free ranges between them. Blocks that overlap stay so.
pub fn tiled(begin: u64, end: u64, active: impl Iterator<Item = Block>) -> Vec<Block> {
    let free = |address: u64, end: u64| Block {
        address,
        bytes: end.saturating_sub(address),
        requested_bytes: 0,
        state: BlockState::Free,
        stack: StackId::NONE,
    };
    let mut blocks = Vec::new();
    let mut at = begin;
    for block in active {
        if block.address > at {
            blocks.push(free(at, block.address));
        }
        at = block.address.saturating_add(block.bytes);
        blocks.push(block);
    }
    if at < end {
        blocks.push(free(at, end));
    }
    blocks
}

impl<E> Snapshot<E> {
    /// Adds segments to the devices or to the host, by their device.
    pub fn add(&mut self, segments: impl IntoIterator<Item = Segment>) {
        for segment in segments {
            let of_host = segment.device == HOST_DEVICE;
            let all = if of_host { &mut self.host_segments } else { &mut self.segments };
            all.push(segment);
        }
    }

    /// Sorts segments and their blocks into the order of the file.
    pub fn sort(&mut self) {
        self.segments.sort_by_key(|segment| (segment.device, segment.address));
        self.host_segments.sort_by_key(|segment| segment.address);
        self.graph_segments.sort_by_key(|segment| (segment.device, segment.address));
        for segment in self.segments.iter_mut().chain(&mut self.host_segments) {
            segment.blocks.sort_by_key(|block| block.address);
        }
    }

    /// Returns the stacks of all entries, blocks and segments, with repetitions.
    pub fn stacks(&self) -> impl Iterator<Item = StackId>
    where
        E: EntryList,
    {
        let histories = self.devices.iter().chain([&self.host]);
        let entries = histories.flat_map(|device| device.entries.each()).map(|entry| entry.stack);
        let segments =
            || self.segments.iter().chain(&self.host_segments).chain(&self.graph_segments);
        let blocks = segments().flat_map(|segment| &segment.blocks).map(|block| block.stack);
        entries.chain(blocks).chain(segments().map(|segment| segment.stack))
    }

    /// Number of lost entries of all devices and the host.
    pub fn dropped_count(&self) -> u64 {
        let of_devices = self.devices.iter().map(|device| device.dropped_count);
        of_devices.sum::<u64>() + self.host.dropped_count
    }
}

//! The typed contents of a snapshot of either writer.
//!
//! A million entries fit into memory because nothing is stored twice: texts, frames and stacks are
//! stored once and referred to by number ([`TextId`], [`FrameId`], [`StackId`]). The tables of
//! [`Snapshot`] resolve the numbers.
//!
//! The numbers come from a file, and a file may contain anything. So blocks may overlap, and sums
//! may overflow; sums saturate.

mod entries;
mod stacks;
mod texts;

use std::collections::HashMap;

pub use cachealloc_history::{BlockState, HOST_DEVICE};

pub use entries::{Entries, Iter as EntriesIter};
pub use stacks::{Frame, FrameId, Frames, StackId, Stacks};
pub use texts::{TextId, Texts};

/// Device number that stands for the memory nodes of graphs, [`Snapshot::graphs`].
pub const GRAPHS: u32 = HOST_DEVICE - 1;

/// One file.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub texts: Texts,
    pub frames: Frames,
    pub stacks: Stacks,
    /// Private pools and the default pool, by [`PoolId`]. The first is the default pool, `(0, 0)`.
    pub pools: Vec<(u64, u64)>,
    /// Devices at the index of their ordinals, up to the last one with a segment or an entry. Those
    /// in between may be empty.
    pub devices: Vec<Device>,
    /// Host memory that devices can access, by host address.
    pub host: Device,
    /// Memory nodes of the graphs of all devices. Each is a segment whose pool is its graph. They
    /// have no history, and may share memory.
    pub graphs: Device,
    pub annotations: Vec<Annotation>,
    pub settings: Settings,
    /// Size of the file, which limits the size of everything made from it.
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The segments after the last entry, by address as in the file.
    pub segments: Vec<Segment>,
    /// The history, oldest entry first. Empty if nothing was recorded.
    pub entries: Entries,
}

/// One event. [`Entries`] stores it in 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Microseconds since 1970, UTC; 0 if the file has no times.
    pub time_us: u64,
    /// The address, or for [`Action::OutOfMemory`] the bytes that were free on the device.
    pub address: u64,
    /// For blocks, the requested size, equal in all entries of a block. For segments, the whole
    /// size. For [`Action::OutOfMemory`], the size of the failed request.
    pub bytes: u64,
    /// 0 is the default stream.
    pub stream: u64,
    /// For an allocation, the requesting stack. For a free, the freeing stack, but in files of
    /// PyTorch the allocating one.
    pub stack: StackId,
    /// The requesting library in files of cachealloc (`app`, `cuBLAS`, ...). Empty if unknown.
    pub category: TextId,
    /// The activity of `torch.compile`. Empty if none.
    pub compile_context: TextId,
    /// Text that the program attached to the event. For [`Action::Annotate`], its whole message.
    pub user_metadata: TextId,
    pub pool: PoolId,
    pub action: Action,
    /// If `user_metadata` holds ranges: the outermost range that was entered since the previous
    /// entry, as the number of parts of the text up to it, from 1. 0 if none was entered or the
    /// file does not tell.
    pub entered: u8,
}

/// The index of a pool in [`Snapshot::pools`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PoolId(pub u32);

impl PoolId {
    /// The default pool.
    pub const DEFAULT: PoolId = PoolId(0);
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The program allocated a block.
    Alloc,
    /// The program freed a block, and it became reusable at once. Files have two entries for this,
    /// one directly after the other; they are read as one.
    Free,
    /// The program freed a block, but a stream may still use it.
    FreeRequested,
    /// A block of `FreeRequested` became reusable.
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    /// Memory was mapped into a part of a reserved address range.
    SegmentMap,
    SegmentUnmap,
    /// A request failed for lack of memory.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// The program attached a message to the block at this address.
    Annotate,
    /// An action that this version does not know.
    Other,
}

/// Memory that the allocator has reserved from the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub address: u64,
    pub bytes: u64,
    pub stream: u64,
    /// Whether it serves small requests.
    pub small: bool,
    pub pool: PoolId,
    pub expandable: bool,
    /// Stack of the request for which it was reserved.
    pub stack: StackId,
    /// Blocks by address.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    pub address: u64,
    pub bytes: u64,
    /// Requested size. Meaningless for a free block.
    pub requested_bytes: u64,
    pub state: BlockState,
    pub stack: StackId,
    /// The requesting library, as in its entry. Empty if unknown.
    pub category: TextId,
}

/// A part of the run that the program named (`record_function`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Annotation {
    pub name: TextId,
    pub begin: bool,
    pub device: u32,
    pub time_us: u64,
}

/// The allocator's settings, and what files of cachealloc contain besides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Settings as texts, in the order of the file: `max_split_size` is `-1`.
    pub all: Vec<(String, String)>,
    /// Settings that only cachealloc writes: `version`, `free_mode`, ... Empty in files of PyTorch.
    pub ours: Vec<(String, String)>,
    /// Number of lost entries, always the oldest ones, or whether any were lost if only that is
    /// known.
    pub dropped: Dropped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dropped {
    /// The file does not tell, as those of PyTorch.
    #[default]
    Unknown,
    Count(u64),
}

impl Snapshot {
    /// Returns whether cachealloc wrote the file.
    pub fn is_ours(&self) -> bool {
        !self.settings.ours.is_empty()
    }

    pub fn setting(&self, name: &str) -> Option<&str> {
        let settings = self.settings.ours.iter().chain(&self.settings.all);
        settings.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the settings of cachealloc whose names start with `begin`: the rest of each name,
    /// and the value.
    pub fn settings_of<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let ours = self.settings.ours.iter();
        ours.filter_map(move |(name, value)| Some((name.strip_prefix(begin)?, value.as_str())))
    }

    /// The frames of a stack, innermost first.
    pub fn frames_of(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> + Clone {
        self.stacks.get(stack).iter().map(|&frame| self.frames.get(frame))
    }

    /// Replaces each of these frames by other frames, innermost first. The ids of frames and stacks
    /// change.
    pub fn replace_frames(&mut self, better: &HashMap<FrameId, Vec<Frame>>) {
        let (mut frames, mut stacks) = (Frames::default(), Stacks::default());
        let mut ids = Vec::with_capacity(self.stacks.len());
        for stack in self.stacks.ids() {
            let old = self.stacks.get(stack).iter();
            let new = old.flat_map(|id| match better.get(id) {
                Some(better) => better.as_slice(),
                None => std::slice::from_ref(self.frames.get(*id)),
            });
            let of_stack: Vec<FrameId> = new.map(|frame| frames.add(*frame)).collect();
            ids.push(stacks.add(&of_stack));
        }
        (self.frames, self.stacks) = (frames, stacks);
        for device in self.devices.iter_mut().chain([&mut self.host, &mut self.graphs]) {
            device.entries.map_stacks(|stack| ids[stack.0 as usize]);
            for segment in &mut device.segments {
                let of_blocks = segment.blocks.iter_mut().map(|block| &mut block.stack);
                let all = of_blocks.chain([&mut segment.stack]);
                all.for_each(|stack| *stack = ids[stack.0 as usize]);
            }
        }
    }

    /// Returns the number of entries of all devices.
    pub fn entries_count(&self) -> usize {
        self.devices.iter().map(|device| device.entries.len()).sum()
    }
}

impl Segment {
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

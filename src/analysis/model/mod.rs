//! The contents of a snapshot, typed, whichever writer the file is from.
//!
//! A million entries fit because nothing is stored twice: texts, frames and stacks are kept once
//! and named by a number ([`TextId`], [`FrameId`], [`StackId`]), which [`Snapshot`]'s tables
//! resolve.
//!
//! Numbers come from a file, and a file may say anything. So nothing here promises that blocks do
//! not overlap or that sums fit; sums saturate.

mod stacks;
mod texts;

use std::collections::HashMap;

pub use cachealloc_history::{BlockState, HOST_DEVICE};

pub use stacks::{Frame, FrameId, Frames, StackId, Stacks};
pub use texts::{TextId, Texts};

/// In the place of a device's ordinal: memory nodes of graphs, [`Snapshot::graphs`].
pub const GRAPHS: u32 = HOST_DEVICE - 1;

/// One file.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub texts: Texts,
    pub frames: Frames,
    pub stacks: Stacks,
    /// Private pools and the default pool, by [`PoolId`]. The first is the default pool, `(0, 0)`.
    pub pools: Vec<(u64, u64)>,
    /// At the index of the device's ordinal. There is one for each device that has a segment or an
    /// entry; those in between may be empty.
    pub devices: Vec<Device>,
    /// Memory of the host that devices reach. Its addresses are the host's.
    pub host: Device,
    /// Memory nodes of graphs, of all devices: each a segment, whose pool is its graph. They have
    /// no history, and may share memory.
    pub graphs: Device,
    pub annotations: Vec<Annotation>,
    pub settings: Settings,
    /// The length of the file: what is made of it is held to that.
    pub file_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Device {
    /// What is there when the last entry has happened, in the order of the file: by address.
    pub segments: Vec<Segment>,
    /// The history, oldest first. Empty where nothing was recorded.
    pub entries: Vec<Entry>,
}

/// One thing that happened. 56 bytes: files have millions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Microseconds since 1970, UTC; 0 where the file has no times.
    pub time_us: u64,
    /// For [`Action::OutOfMemory`]: the bytes that were free on the device.
    pub address: u64,
    /// For blocks: what was requested, the same in all entries of a block. For segments: all of it.
    /// For [`Action::OutOfMemory`]: what was asked for.
    pub bytes: u64,
    /// 0 is the default stream.
    pub stream: u64,
    /// Of an allocation: the requesting stack. Of a free: the freeing one, or in files of PyTorch
    /// the allocating one.
    pub stack: StackId,
    /// The library that asked, as our files say it (`app`, `cuBLAS`, ...). Empty: not said.
    pub category: TextId,
    /// What `torch.compile` was doing. Empty: nothing.
    pub compile_context: TextId,
    /// What the program attached to it; that of [`Action::Annotate`] is its whole message.
    pub user_metadata: TextId,
    pub pool: PoolId,
    pub action: Action,
    /// Where `user_metadata` are ranges, the outermost that was entered since the entry before:
    /// after how many parts of the text, from 1. 0: none, or the file does not say.
    pub entered: u8,
}

/// The index of a pool in [`Snapshot::pools`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PoolId(pub u32);

impl PoolId {
    /// The pool that memory comes from by default.
    pub const DEFAULT: PoolId = PoolId(0);
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The program got a block.
    Alloc,
    /// The program gave a block back, and it became reusable at once. Files have two entries for
    /// it, one directly after the other; they are read as one.
    Free,
    /// The program gave a block back, but a stream may still use it.
    FreeRequested,
    /// That block became reusable.
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    /// Memory was put behind a part of a range of addresses.
    SegmentMap,
    SegmentUnmap,
    /// A request could not be served.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// The program said something about the block at this address.
    Annotate,
    /// Something that this version does not know.
    Other,
}

/// Memory that the allocator has from the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub address: u64,
    pub bytes: u64,
    pub stream: u64,
    /// For small requests.
    pub small: bool,
    pub pool: PoolId,
    pub expandable: bool,
    /// The stack of the request that it was reserved for.
    pub stack: StackId,
    /// By address.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    pub address: u64,
    pub bytes: u64,
    /// What the program asked for. Means nothing where the block is free.
    pub requested_bytes: u64,
    pub state: BlockState,
    pub stack: StackId,
    /// The library that asked, as in its entry. Empty: not said.
    pub category: TextId,
}

/// A part of the run that the program has named (`record_function`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Annotation {
    pub name: TextId,
    pub begin: bool,
    pub device: u32,
    pub time_us: u64,
}

/// The allocator's settings, and what our own files say besides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// By name, as text, in the order of the file: `max_split_size` is `-1`.
    pub all: Vec<(String, String)>,
    /// What only our library writes, by name: `version`, `free_mode`, ... Empty in files of
    /// PyTorch.
    pub ours: Vec<(String, String)>,
    /// How many entries were lost, always the oldest, or whether any were where only that is known.
    pub dropped: Dropped,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dropped {
    /// The file does not say: PyTorch's.
    #[default]
    Unknown,
    Count(u64),
}

impl Snapshot {
    /// Whether our library wrote it.
    pub fn is_ours(&self) -> bool {
        !self.settings.ours.is_empty()
    }

    pub fn setting(&self, name: &str) -> Option<&str> {
        let settings = self.settings.ours.iter().chain(&self.settings.all);
        settings.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Those of ours whose names begin so: the rest of each name, and its value.
    pub fn settings_of<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let ours = self.settings.ours.iter();
        ours.filter_map(move |(name, value)| Some((name.strip_prefix(begin)?, value.as_str())))
    }

    /// The frames of a stack, innermost first.
    pub fn frames_of(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> + Clone {
        self.stacks.get(stack).iter().map(|&frame| self.frames.get(frame))
    }

    /// Puts other frames, innermost first, in the place of each of these. Frames and stacks get
    /// other ids by that.
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
            let of_entries = device.entries.iter_mut().map(|entry| &mut entry.stack);
            of_entries.for_each(|stack| *stack = ids[stack.0 as usize]);
            for segment in &mut device.segments {
                let of_blocks = segment.blocks.iter_mut().map(|block| &mut block.stack);
                let all = of_blocks.chain([&mut segment.stack]);
                all.for_each(|stack| *stack = ids[stack.0 as usize]);
            }
        }
    }

    /// How many entries there are on all devices.
    pub fn entries_count(&self) -> usize {
        self.devices.iter().map(|device| device.entries.len()).sum()
    }
}

impl Segment {
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

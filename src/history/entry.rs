//! One thing that happened to device memory, in 40 bytes: a ring holds a million of them.

/// The handle of an interned call stack. See [`Stacks`](crate::Stacks) for what the number means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack: none was taken, or there was no room for it.
    pub const NONE: StackId = StackId(0);

    pub const fn is_none(self) -> bool {
        self.0 == StackId::NONE.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Action {
    /// The program got a block.
    #[default]
    Alloc,
    /// The program gave a block back, but a stream may still use it.
    FreeRequested,
    /// That block became reusable.
    FreeCompleted,
    /// Requested and completed at once. One entry here, two in a file: PyTorch's tools expect the
    /// pair, and most frees are of this kind.
    Free,
    /// A segment came from the driver.
    SegmentAlloc,
    /// A segment went back to the driver, whole.
    SegmentFree,
    /// Memory was mapped into a reserved range of addresses.
    SegmentMap,
    /// Memory was unmapped from one.
    SegmentUnmap,
    /// A request could not be served.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
}

impl Action {
    /// By number, in this order.
    pub const ALL: [Action; 10] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::Free,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::OutOfMemory,
        Action::Snapshot,
    ];
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// Of the clock that [`Clock`](crate::Clock) translates.
    pub time_ns: u64,
    /// For [`Action::OutOfMemory`]: the bytes that were free on the device.
    pub address: u64,
    /// For `Alloc` and the frees: the bytes that were requested, the same in all entries of one
    /// block. For segments: their bytes. For `OutOfMemory`: the bytes asked for. For `Snapshot`: all
    /// active bytes.
    pub bytes: u64,
    /// 0 is the default stream.
    pub stream: u64,
    pub stack: StackId,
    pub action: Action,
    /// The outermost of its ranges that its thread entered since its entry before, by how many names lead to it: in
    /// `step/forward` 1 is `step`. 0: none.
    pub entered: u8,
    /// What range of the program it happened in: a number of [`Snapshot::ranges`](crate::Snapshot::ranges).
    pub range: u16,
}

/// The number of a range: the program was in none.
pub const NO_RANGE: u16 = 0;

const ENTRY_BYTES_MAX: usize = 40;
const _: () = assert!(size_of::<Entry>() <= ENTRY_BYTES_MAX);

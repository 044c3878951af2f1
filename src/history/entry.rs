//! One event in the history of device memory, in 40 bytes: a ring holds a million of them.

/// Handle of an interned call stack. See [`Stacks`](crate::Stacks) for what the number means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack: none was captured, or there was no memory for it.
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
    /// The program freed a block, but a stream may still use it.
    FreeRequested,
    /// A block freed earlier became reusable.
    FreeCompleted,
    /// A free that was requested and completed at once. It is one entry here and two in a file:
    /// PyTorch's tools expect the pair, and most frees are of this kind.
    Free,
    /// The driver provided a segment.
    SegmentAlloc,
    /// A whole segment was released to the driver.
    SegmentFree,
    /// Memory was mapped into a reserved range of addresses.
    SegmentMap,
    /// Memory was unmapped from a reserved range of addresses.
    SegmentUnmap,
    /// A request could not be served.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
}

impl Action {
    /// All actions, each at the index of its number.
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
    /// Time of the clock that [`Clock`](crate::Clock) translates.
    pub time_ns: u64,
    /// For [`Action::OutOfMemory`]: number of bytes that were free on the device.
    pub address: u64,
    /// For `Alloc` and the frees: the requested bytes, equal in all entries of one block. For
    /// segments: their bytes. For `OutOfMemory`: the requested bytes. For `Snapshot`: all active
    /// bytes.
    pub bytes: u64,
    /// Stream; 0 is the default stream.
    pub stream: u64,
    pub stack: StackId,
    pub action: Action,
    /// Outermost of its ranges that its thread has entered since the thread's previous entry, as a
    /// depth: for `step/forward`, 1 is `step`. 0 if the thread entered none.
    pub entered: u8,
    /// Range of the program in which it happened: a number of
    /// [`Snapshot::ranges`](crate::Snapshot::ranges).
    pub range: u16,
}

/// Number that means that the program was in no range.
pub const NO_RANGE: u16 = 0;

const ENTRY_BYTES_MAX: usize = 40;
const _: () = assert!(size_of::<Entry>() <= ENTRY_BYTES_MAX);

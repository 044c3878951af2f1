//! Values of which memory hooks are notified for memory that is not a block of the cache, and what
//! is kept until its end.

/// Kinds of memory that are not linear: `enum cachealloc_kind` of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Managed = 1,
    /// Pinned or registered memory.
    Pinned = 2,
    Array = 3,
    Physical = 4,
    Mapped = 5,
    /// A memory node.
    Graph = 6,
}

/// An allocation of such a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Other {
    pub kind: Kind,
    /// Device of the memory, or `HOST`.
    pub device: i32,
    pub bytes: u64,
    /// Address or handle.
    pub number: u64,
}

/// Values of which memory hooks are notified at an allocation, and again at its free.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Observed {
    pub buffer_id: u64,
    pub device: i32,
    /// Kind of the memory, or `None` for linear memory, which hooks observe like a block.
    pub kind: Option<Kind>,
}

impl Other {
    /// Words that a callback gets.
    pub(super) fn words(&self, buffer_id: u64) -> [u64; 4] {
        [self.kind as u64, self.bytes, self.number, buffer_id]
    }
}

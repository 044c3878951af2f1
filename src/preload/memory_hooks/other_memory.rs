//! What memory hooks are told of memory that is no block of the cache's, and what is kept of that for its end.

/// What is not linear memory: `enum cachealloc_kind` of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Managed = 1,
    /// Or registered.
    Pinned = 2,
    Array = 3,
    Physical = 4,
    Mapped = 5,
    /// A memory node.
    Graph = 6,
}

/// Memory of such a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Other {
    pub kind: Kind,
    /// Or `HOST`.
    pub device: i32,
    pub bytes: u64,
    /// Its address, or its handle.
    pub number: u64,
}

/// What memory hooks were told of an allocation, and are told again at its free.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Observed {
    pub buffer_id: u64,
    pub device: i32,
    /// None: linear memory, which they hear of as of a block.
    pub kind: Option<Kind>,
}

impl Other {
    /// As a callback gets it.
    pub(super) fn words(&self, buffer_id: u64) -> [u64; 4] {
        [self.kind as u64, self.bytes, self.number, buffer_id]
    }
}

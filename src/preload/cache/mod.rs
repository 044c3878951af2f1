//! Allocations and frees: from the cache, and from the driver if the cache has nothing.

pub(crate) mod all_work;
pub(crate) mod alloc;
pub(crate) mod arenas;
pub(crate) mod blocks;
pub(crate) mod fill;
pub(crate) mod free;
mod free_on_stream;
pub(crate) mod miss;
pub(crate) mod pinned_blocks;
pub(crate) mod pinned_memory;
pub(crate) mod pitches;
pub(crate) mod pools;
mod publish;
pub(crate) mod red_zones;
pub(crate) mod release;
pub(crate) mod retry;
pub(crate) mod sticky_error;
pub(crate) mod stream_frees;
pub(crate) mod streams;

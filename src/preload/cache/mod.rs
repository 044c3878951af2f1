//! Allocations and frees: from the cache, and from the driver where the cache has nothing.

pub mod alloc;
pub mod arenas;
pub mod chunks;
pub mod contents;
pub mod departures;
pub mod free;
pub mod lost;
pub mod miss;
pub mod pool_numbers;
pub mod pools;
pub mod room;
pub mod shortage;
pub mod stream_frees;
pub mod streams;
pub mod thread_cache;

//! Data structures of a context, a stream, a thread and a segment. The modules after this one act on
//! them.

pub(crate) mod arenas;
pub(crate) mod barriers;
pub(crate) mod contexts;
pub(crate) mod correction;
pub(crate) mod events;
pub(crate) mod inflight_releases;
pub(crate) mod pool_attributes;
pub(crate) mod red_zones;
pub(crate) mod registry;
pub(crate) mod release;
pub(crate) mod slot;
pub(crate) mod stream_frees;
pub(crate) mod thread;
pub(crate) mod thread_cache;
pub(crate) mod under_way;

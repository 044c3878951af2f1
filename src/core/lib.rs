//! The allocator and the ordering rules of cachealloc, as pure computation.
//!
//! The nouns, from the outside in: an *allocator* keeps the memory of one CUDA context. It consists
//! of *segments*, contiguous ranges obtained from the driver in one go. A segment is tiled by
//! *blocks*: allocated, free, or freed with a *tag* that says which streams may use them again, and when.
//!
//! The promise: this crate never calls out. It knows no CUDA, no time, no threads, no files. What
//! it needs from the driver it says as a [`Step`], and the caller comes back with the result.
#![no_std]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

extern crate alloc;

// The route of a request, in reading order.
mod types;

pub mod policy;

mod request;

mod allocator;

mod allocate;

mod stream_dependencies;

mod free;

mod plain;

mod release;

mod capacity;

mod split_policy;

mod private;

mod decay;

mod idle;

mod free_limit;

mod attached;

mod arenas;

mod holes;

mod runs;

mod exported_blocks;

mod views;

mod stats;

// What these are made of.
mod bins;
mod block;
mod check;
mod counts;
mod free_index;
mod table;
mod tags;

pub mod order;
pub mod rules;

#[cfg(test)]
#[path = "tests/allocator/searches.rs"]
#[allow(unreachable_pub)]
mod searches;

pub use allocator::Allocator;
pub use counts::Counts;
pub use decay::{IdleEpoch, Pass};
pub use free::{Behind, Waiting};
pub use plain::PlainHit;
pub use policy::Policy;
pub use request::{POLLS_COUNT_MAX, Request};
pub use stats::{PoolStats, Stat, Stats};
pub use tags::TagEpoch;
pub use types::{
    Address, Allocation, BlockId, Completed, EventId, Mapping, Pool, PrivatePool, Requester,
    ReuseCondition, Segment, SegmentId, Step, StreamId,
};
pub use views::{BlockState, BlockView, SegmentView};

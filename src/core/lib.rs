//! The allocator and the ordering rules of cachealloc, as pure computation.
//!
//! The terms, from the outside in: an *allocator* keeps the memory of one CUDA context. It consists
//! of *segments*, contiguous ranges obtained from the driver in one go. A segment is tiled by
//! *blocks*: allocated, free, or freed with a *tag* that says which streams may reuse them, and
//! when.
//!
//! This crate never calls out. It knows no CUDA, no time, no threads, no files. It returns the
//! driver call it needs as a [`Step`], and the caller reports the result.
#![no_std]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

extern crate alloc;

// The route of a request, in reading order.
mod allocate;
mod allocator;
mod arenas;
mod capacity;
mod exported_blocks;
mod free;
mod idle;
pub mod policy;
mod private;
mod release;
mod request;
mod stats;
// The route of a request, in reading order.
mod types;

// What these are made of.
mod block;
mod free_index;
pub mod order;
pub mod rules;
mod table;
mod tags;

#[cfg(test)]
#[path = "tests/unit/searches.rs"]
#[allow(unreachable_pub)]
mod searches;

pub use allocate::plain::PlainHit;
pub use allocator::Allocator;
pub use allocator::counts::Counts;
pub use allocator::views::{BlockState, BlockView, SegmentView};
pub use free::{Behind, Waiting};
pub use idle::decay::{IdleEpoch, Pass};
pub use policy::Policy;
pub use request::{POLLS_COUNT_MAX, Request};
pub use stats::{PoolStats, Stat, Stats};
pub use tags::TagEpoch;
pub use types::{
    Address, Allocation, BlockId, Completed, EventId, Mapping, Pool, PrivatePool, Requester,
    ReuseCondition, Segment, SegmentId, Step, StreamId,
};

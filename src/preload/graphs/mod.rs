//! Captures and their memory. Here: what a capture remembers of its blocks.

pub mod captured_work;
pub mod graph_memory;
pub mod names;
pub mod open_captures;
pub mod participants;
pub mod pool_life;
pub mod pools;
pub mod private_pools;

use std::collections::BTreeMap;

use cachealloc_core::BlockId;
use cachealloc_core::order::reuse::AllocationPoint;

use crate::contexts::Context;

/// What is remembered of the blocks that a capture holds, by address, and of those that wait, by a number
/// of the capture's: blocks of several contexts may have one.
#[derive(Default)]
pub struct AllocationPoints {
    held: BTreeMap<u64, (AllocationPoint, Option<u64>)>,
    waiting: BTreeMap<BlockId, (&'static Context, BlockId)>,
    last: u32,
}

impl AllocationPoints {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn waits(&mut self, context: &'static Context, block: BlockId) -> BlockId {
        self.last += 1;
        self.waiting.insert(BlockId(self.last), (context, block));
        BlockId(self.last)
    }
}

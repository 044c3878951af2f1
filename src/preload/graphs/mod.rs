//! Captures and their memory. This file has what a capture remembers about its blocks.

pub(crate) mod captured_work;
pub(crate) mod destruction_fence;
pub(crate) mod graph_memory;
pub(crate) mod node_references;
pub(crate) mod open_captures;
pub(crate) mod participants;
pub(crate) mod pool_life;
pub(crate) mod pools;
pub(crate) mod private_pools;

use std::collections::BTreeMap;

use cachealloc_core::BlockId;
use cachealloc_core::order::reuse::AllocationPoint;

use crate::state::contexts::Context;

/// Allocation points of the blocks that a capture holds, by address, and the blocks that wait, by a
/// number of the capture: block ids of different contexts may be equal.
#[derive(Default)]
pub(crate) struct AllocationPoints {
    allocated: BTreeMap<u64, (AllocationPoint, Option<u64>)>,
    waiting: BTreeMap<BlockId, (&'static Context, BlockId)>,
    last: u32,
}

impl AllocationPoints {
    pub(crate) fn is_empty(&self) -> bool {
        self.allocated.is_empty()
    }

    fn waits(&mut self, context: &'static Context, block: BlockId) -> BlockId {
        self.last += 1;
        self.waiting.insert(BlockId(self.last), (context, block));
        BlockId(self.last)
    }
}

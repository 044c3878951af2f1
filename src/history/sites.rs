//! Sums live blocks by the stack that allocated them.

use std::collections::HashMap;

use crate::entry::StackId;
use crate::hash::BuildWordHasher;
use crate::snapshot::{BlockState, Snapshot};

/// One call site, and the memory it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    pub stack: StackId,
    pub bytes: u64,
    pub blocks_count: u64,
}

/// Returns the sites, given the stack and the bytes of every live block. The largest comes first.
/// Ties are ordered by more blocks, then by the older stack, so that the order is deterministic.
pub fn sites(blocks: impl IntoIterator<Item = (StackId, u64)>) -> Vec<Site> {
    let mut by_stack: HashMap<StackId, Site, BuildWordHasher> = HashMap::default();
    for (stack, bytes) in blocks {
        let site = by_stack.entry(stack).or_insert(Site { stack, bytes: 0, blocks_count: 0 });
        site.bytes = site.bytes.saturating_add(bytes);
        site.blocks_count += 1;
    }
    let mut sites: Vec<Site> = by_stack.into_values().collect();
    sites.sort_unstable_by(|left, right| {
        let key = |site: &Site| (site.bytes, site.blocks_count);
        key(right).cmp(&key(left)).then(left.stack.cmp(&right.stack))
    });
    sites
}

/// Returns the sites of one device of a snapshot, from the blocks that the program holds.
pub fn live_sites(snapshot: &Snapshot, device: u32) -> Vec<Site> {
    let segments = snapshot.segments.iter().filter(|segment| segment.device == device);
    let blocks = segments.flat_map(|segment| &segment.blocks);
    let live = blocks.filter(|block| block.state == BlockState::Allocated);
    sites(live.map(|block| (block.stack, block.bytes)))
}

//! What lies beside the free pieces of segments that are partly used: it keeps them from the driver, and from larger requests.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::model::{Block, BlockState, Segment};

/// Of a call site, at the free pieces of segments that are partly used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    /// Free right before or behind one of its blocks; a piece counts for each call site beside it.
    pub free_bytes: u64,
    pub free_count: u64,
    /// The blocks that lie there.
    pub blocks_count: u64,
    pub blocks_bytes: u64,
}

/// By what `site_of` says of a block: the most free bytes first.
pub fn beside<S: Copy + Ord + Hash>(
    segments: &[Segment],
    site_of: impl Fn(&Block) -> S,
) -> Vec<(S, Beside)> {
    let is_free = |block: &Block| block.state == BlockState::Free;
    let mut sites: HashMap<S, Beside> = HashMap::new();
    for Segment { blocks, .. } in segments {
        if blocks.iter().all(is_free) {
            continue;
        }
        for (index, block) in blocks.iter().enumerate() {
            let near = [index.checked_sub(1), Some(index + 1)];
            let mut near = near.into_iter().flatten().filter_map(|index| blocks.get(index));
            if !is_free(block) {
                if near.any(is_free) {
                    let beside = sites.entry(site_of(block)).or_default();
                    beside.blocks_count += 1;
                    beside.blocks_bytes = beside.blocks_bytes.saturating_add(block.bytes);
                }
                continue;
            }
            let whose: BTreeSet<S> = near.filter(|block| !is_free(block)).map(&site_of).collect();
            for site in whose {
                let beside = sites.entry(site).or_default();
                beside.free_count += 1;
                beside.free_bytes = beside.free_bytes.saturating_add(block.bytes);
            }
        }
    }
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_unstable_by_key(|&(site, beside)| (Reverse(beside.free_bytes), site));
    sites
}

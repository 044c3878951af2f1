//! Blocks beside the free ranges of partly used segments. They prevent the release of the segments
//! to the driver, and larger requests.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::model::{Block, BlockState, Segment};

/// The share of a call site in the free ranges of partly used segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdjacentFree {
    /// Free bytes directly before or after one of its blocks. A free range counts for each call
    /// site beside it.
    pub free_bytes: u64,
    pub free_count: u64,
    /// Number of its blocks beside free ranges.
    pub blocks_count: u64,
    pub blocks_bytes: u64,
}

/// Returns the free ranges by the site that `site_of` returns for a block, most free bytes first.
pub fn adjacent_free<S: Copy + Ord + Hash>(
    segments: &[Segment],
    site_of: impl Fn(&Block) -> S,
) -> Vec<(S, AdjacentFree)> {
    let is_free = |block: &Block| block.state == BlockState::Free;
    let mut sites: HashMap<S, AdjacentFree> = HashMap::new();
    for Segment { blocks, .. } in segments {
        if blocks.iter().all(is_free) {
            continue;
        }
        for (index, block) in blocks.iter().enumerate() {
            let near = [index.checked_sub(1), Some(index + 1)];
            let mut near = near.into_iter().flatten().filter_map(|index| blocks.get(index));
            if !is_free(block) {
                if near.any(is_free) {
                    let adjacent_free = sites.entry(site_of(block)).or_default();
                    adjacent_free.blocks_count += 1;
                    adjacent_free.blocks_bytes =
                        adjacent_free.blocks_bytes.saturating_add(block.bytes);
                }
                continue;
            }
            let whose: BTreeSet<S> = near.filter(|block| !is_free(block)).map(&site_of).collect();
            for site in whose {
                let adjacent_free = sites.entry(site).or_default();
                adjacent_free.free_count += 1;
                adjacent_free.free_bytes = adjacent_free.free_bytes.saturating_add(block.bytes);
            }
        }
    }
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_unstable_by_key(|&(site, adjacent_free)| (Reverse(adjacent_free.free_bytes), site));
    sites
}

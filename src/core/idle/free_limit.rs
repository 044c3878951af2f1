//! Free memory beyond the maximum (`Policy::free_bytes_max`), which is released although it was
//! used lately.
//!
//! Note [Excess]. Paddle collects its garbage when there is more of it than
//! `eager_delete_tensor_gb`, the largest first, up to a share of its bytes
//! (`memory_fraction_of_eager_deletion`). Here the garbage is the memory that is free for every
//! request, and no more of it is released than exceeds the maximum.
//!
//! Memory that the share spares would be next at the following pass, so that a share would only be
//! a delay. Therefore it is *left*: it is neither released nor counted any more until something has
//! used it, and then counts as any other.
//!
//! Memory that cannot be released counts too, namely free parts of segments that are in use: the
//! user has set the maximum for all free memory. None of this affects Note [Decay], which is about
//! unused memory.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::allocator::Allocator;
use crate::block::Block;
use crate::idle::decay::IdleEpoch;
use crate::idle::is_idle;
use crate::policy::BLOCK_BYTES_MIN;
use crate::types::{BlockId, Mapping, Segment};

impl Allocator {
    /// Removes the free memory that exceeds the policy's maximum and was not used since the epoch:
    /// segments, and the backing of blocks in arenas. Chunks stay: they were reserved to be kept.
    pub fn release_excess(&mut self, mark: IdleEpoch) -> (Vec<Segment>, Vec<Mapping>) {
        let (mut segments, mut mappings) = (Vec::new(), Vec::new());
        let free_bytes_max =
            self.policy.free_bytes_max.filter(|_| self.policy.chunk_bytes.is_none());
        let Some(free_bytes_max) = free_bytes_max else { return (segments, mappings) };
        let is_left = |block: &Block| block.freed_at < self.left_before.0;
        let (left, mut candidates): (Vec<_>, Vec<_>) =
            self.releasable().into_iter().partition(|(id, _)| is_left(self.blocks.at(id.0)));
        candidates.retain(|(id, _)| is_idle(self.blocks.at(id.0), mark));
        let excess_bytes =
            self.cached_free_bytes().saturating_sub(sum(&left).saturating_add(free_bytes_max));
        let share_bytes = (self.policy.excess_share * sum(&candidates) as f64) as u64;
        if share_bytes < excess_bytes {
            self.left_before = mark;
        }
        let mut wanted_bytes = excess_bytes.min(share_bytes);
        candidates.sort_by_key(|(_, bytes)| Reverse(*bytes));
        for (id, bytes) in candidates {
            if wanted_bytes == 0 {
                break;
            }
            let block = self.blocks.at(id.0);
            if block.expandable {
                mappings.extend(self.cut(id, wanted_bytes));
            } else {
                segments.push(self.remove_segment(block.segment));
            }
            wanted_bytes = wanted_bytes.saturating_sub(bytes);
        }
        (segments, mappings)
    }

    /// Returns the free blocks that fill a segment, or contain whole mappings, and the bytes that
    /// can be released.
    fn releasable(&self) -> Vec<(BlockId, u64)> {
        let plain = self.segments.iter().filter(|(_, segment)| !segment.expandable);
        let whole =
            plain.map(|(_, segment)| (segment.first, segment.bytes)).filter(|(first, _)| {
                let first = self.blocks.at(first.0);
                first.is_free_everywhere() && !first.is_split()
            });
        whole.chain(self.unmappable()).collect()
    }

    /// Returns the bytes that every request may take.
    fn cached_free_bytes(&self) -> u64 {
        let everywhere =
            [&self.small, &self.large].map(|index| index.everywhere().at_least(BLOCK_BYTES_MIN));
        everywhere.into_iter().flatten().map(|(rank, _)| rank.bytes).sum()
    }
}

fn sum(blocks: &[(BlockId, u64)]) -> u64 {
    blocks.iter().map(|(_, bytes)| bytes).sum()
}

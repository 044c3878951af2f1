//! Memory that was not used for a while, which other processes on the device may need.
//!
//! Note [Idle memory]. The allocator has no clock; its caller knows how long a while is, and takes
//! an epoch now and then. Memory is idle since an epoch if it has been free for every request ever
//! since: every free block keeps the clock of its last free, of the later one where blocks
//! coalesce, and the remainder of a split block keeps that of the whole. So a segment of one free
//! block that is older than the epoch has not been touched since, and all work with it is older
//! than the epoch too.
//!
//! Blocks that wait for something are not idle, and become free for every request only when that is
//! complete.

pub(crate) mod decay;
pub(crate) mod free_limit;

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::{Block, IdleSpan};
use crate::idle::decay::{IdleEpoch, Pass};
use crate::rules::{Rule, rule_holds};
use crate::types::{Mapping, Segment, SegmentId};

impl Allocator {
    /// Returns the current epoch.
    pub fn idle_mark(&mut self) -> IdleEpoch {
        self.clock += 1;
        IdleEpoch(self.clock)
    }

    /// Makes a pass. `unused_count` is the number of passes for which unused memory is kept; `None`
    /// as Note [Decay] describes.
    pub fn pass(&mut self, unused_count: Option<u32>) -> Pass {
        let mark = self.idle_mark();
        Pass { mark, due: self.decay.pass(mark, unused_count.map(u64::from)) }
    }

    /// Removes the memory that is idle since the epoch from the allocator: segments, and the
    /// backing of blocks in arenas. Chunks stay: they were reserved to be kept.
    pub fn release_idle(&mut self, mark: IdleEpoch) -> (Vec<Segment>, Vec<Mapping>) {
        if self.policy.chunk_bytes.is_some() {
            return (Vec::new(), Vec::new());
        }
        let (segments, mappings) = self.release_unused(mark, u64::MAX);
        segments.iter().for_each(|segment| self.decay.segment_went(segment.bytes));
        mappings.iter().for_each(|mapping| self.decay.mapping_went(mapping.bytes));
        (segments, mappings)
    }

    /// Removes idle memory, including chunks, on demand, until this many bytes are removed, the
    /// longest unused first.
    pub fn release_unused(
        &mut self,
        mark: IdleEpoch,
        wanted_bytes: u64,
    ) -> (Vec<Segment>, Vec<Mapping>) {
        let mut idle: Vec<(u64, SegmentId)> = self.idle_segments(mark).collect();
        idle.sort_unstable();
        let mut gone_bytes = 0;
        let mut released = Vec::new();
        for (_, id) in idle {
            if gone_bytes >= wanted_bytes {
                break;
            }
            let segment = self.remove_segment(id);
            gone_bytes += segment.bytes;
            released.push(segment);
        }
        let left_bytes = wanted_bytes.saturating_sub(gone_bytes);
        (released, self.unmap_oldest(left_bytes, |block| idle_part(block, mark)))
    }

    /// Removes the backing of all blocks in arenas that were free at this epoch.
    pub fn unmap_idle(&mut self, mark: IdleEpoch) -> Vec<Mapping> {
        self.unmap_oldest(u64::MAX, |block| idle_part(block, mark))
    }

    /// Returns how many bytes could leave the allocator, as far as is known without queries: memory
    /// that waits for events counts as free.
    pub fn free_bytes(&self) -> u64 {
        self.freed_bytes() + self.unmappable_bytes()
    }

    /// Returns how many of the free bytes are idle since the last pass.
    pub fn unused_bytes(&self) -> u64 {
        let Some(mark) = self.decay.newest() else { return 0 };
        let segments = self.idle_segments(mark);
        let segment_bytes: u64 = segments.map(|(_, id)| self.segments.at(id.0).bytes).sum();
        segment_bytes + self.unmappable_bytes_of(|block| idle_part(block, mark))
    }

    /// Returns the segments of one idle block each, and since when they are idle.
    fn idle_segments(&self, mark: IdleEpoch) -> impl Iterator<Item = (u64, SegmentId)> {
        let plain = self.segments.iter().filter(|(_, it)| !it.expandable && it.private.is_none());
        plain.filter_map(move |(number, segment)| {
            let first = self.blocks.at(segment.first.0);
            let idle = !first.is_split() && is_idle(first, mark);
            idle.then_some((first.freed_at, SegmentId(number)))
        })
    }
}

pub(crate) fn is_idle(block: &Block, mark: IdleEpoch) -> bool {
    let since = block.freed_at < mark.0 || !rule_holds(Rule::IdleSinceMark);
    block.is_free_everywhere() && since
}

/// Returns the idle part of a block in an arena: all of it, or the part that was free before the
/// rest.
fn idle_part(block: &Block, mark: IdleEpoch) -> Option<IdleSpan> {
    if is_idle(block, mark) {
        return Some(IdleSpan { begin: block.address, end: block.end(), freed_at: block.freed_at });
    }
    let is_free = block.is_free_everywhere();
    block.idle_span.filter(|idle_span| is_free && idle_span.freed_at < mark.0)
}

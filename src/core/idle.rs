//! Memory that was not used for a while, which other processes on the device may need.
//!
//! Note [Idle memory]. The allocator has no clock; its caller knows how long a while is, and takes
//! a mark now and then. Idle since a mark is what has been free for every request ever since: every
//! free block keeps the clock of its last free, of the later one where blocks coalesce, and what is
//! left of a split block keeps that of the whole. So a segment of one free block that is older than
//! the mark has not been touched since, and all work with it is older than the mark too.
//!
//! Blocks that wait for something are not idle, and become free for every request only when that is
//! over.

pub(crate) mod decay;
pub(crate) mod free_limit;

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::{Block, IdleSpan};
use crate::idle::decay::{IdleEpoch, Pass};
use crate::rules::{Rule, rule_holds};
use crate::types::{Mapping, Segment, SegmentId};

impl Allocator {
    /// Now.
    pub fn idle_mark(&mut self) -> IdleEpoch {
        self.clock += 1;
        IdleEpoch(self.clock)
    }

    /// The caller passes by. `unused_count`: for how many of its passes memory is kept that nothing
    /// uses; None: as Note [Decay] says.
    pub fn pass(&mut self, unused_count: Option<u32>) -> Pass {
        let mark = self.idle_mark();
        Pass { mark, due: self.decay.pass(mark, unused_count.map(u64::from)) }
    }

    /// Takes what is idle since the mark out of the allocator: segments, and memory behind blocks
    /// in arenas. Not chunks: they were reserved to be kept.
    pub fn release_idle(&mut self, mark: IdleEpoch) -> (Vec<Segment>, Vec<Mapping>) {
        if self.policy.chunk_bytes.is_some() {
            return (Vec::new(), Vec::new());
        }
        let (segments, mappings) = self.release_unused(mark, u64::MAX);
        segments.iter().for_each(|segment| self.decay.segment_went(segment.bytes));
        mappings.iter().for_each(|mapping| self.decay.mapping_went(mapping.bytes));
        (segments, mappings)
    }

    /// The same, chunks as well: on demand, until so many bytes have gone, the longest unused
    /// first.
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

    /// How many bytes could leave the allocator, as far as one can say without asking anything:
    /// what waits for events counts as free.
    pub fn free_bytes(&self) -> u64 {
        self.freed_bytes() + self.unmappable_bytes()
    }

    /// How many of them are idle since the caller last passed by.
    pub fn unused_bytes(&self) -> u64 {
        let Some(mark) = self.decay.newest() else { return 0 };
        let segments = self.idle_segments(mark);
        let segment_bytes: u64 = segments.map(|(_, id)| self.segments.at(id.0).bytes).sum();
        segment_bytes + self.unmappable_bytes_of(|block| idle_part(block, mark))
    }

    /// Those of one idle block, and since when.
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
    block.is_free_everywhere() && !block.exported && since
}

/// What of a block in an arena is idle: all of it, or what was free before the rest.
fn idle_part(block: &Block, mark: IdleEpoch) -> Option<IdleSpan> {
    if is_idle(block, mark) {
        return Some(IdleSpan { begin: block.address, end: block.end(), freed_at: block.freed_at });
    }
    let is_free = block.is_free_everywhere() && !block.exported;
    block.idle_span.filter(|idle_span| is_free && idle_span.freed_at < mark.0)
}

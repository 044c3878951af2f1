//! Blocks that other processes may have mapped (legacy CUDA IPC), or other hardware (dma-bufs).
//!
//! Note [Exported blocks]. The exporter cannot know when the importers have closed it. So a block
//! that was exported is never handed out again: once freed, it is *retired*, neither allocated nor
//! free, in no index and merged with nothing. When its segment has nothing left but retired and
//! free blocks, the segment leaves the allocator at once, and is released by the driver's own free:
//! the driver keeps the memory for processes that have it mapped. A block that is a whole segment
//! leaves with its free, as it would on the plain driver. In an arena, a retired block keeps its
//! memory: an arena does not grow after the first export, so no more than it has by then.
//!
//! A handle names a segment, and only the library's own importer finds a block inside one. So from
//! the first export on each large request gets a separate, uncut segment: a block exported later
//! begins its segment, and any importer has the right bytes. Where there is no memory for that, a
//! part of a segment is better than an error (`Stage::TakeAny`).

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::State;
use crate::policy::{is_small, own_segment_bytes};
use crate::request::{Request, Stage};
use crate::rules::{Rule, rule_holds};
use crate::types::{BlockId, Segment, SegmentId};

impl Allocator {
    /// Records that others may map this allocated block from now on. One call is enough.
    pub fn export(&mut self, id: BlockId) {
        let block = self.blocks.at_mut(id.0);
        assert!(block.state == State::Allocated, "{id:?} is exported but not allocated");
        if !block.exported {
            block.exported = true;
            self.segments.at_mut(block.segment.0).exported_count += 1;
        }
    }

    /// Gives each large request a separate segment from now on.
    pub fn keep_large_whole(&mut self) {
        self.whole_large = true;
    }

    pub fn keeps_large_whole(&self) -> bool {
        self.whole_large
    }

    /// Returns segments that have nothing left but retired and free blocks; they leave the
    /// allocator. Call it after frees, barriers and completed events. Before the first export there
    /// are none.
    pub fn take_retired(&mut self) -> Vec<Segment> {
        let leaving = core::mem::take(&mut self.leaving);
        let retired = leaving.into_iter().filter(|id| self.is_retired(*id));
        let retired: Vec<SegmentId> = retired.collect();
        retired.into_iter().map(|id| self.remove_segment(id)).collect()
    }

    /// Retires a block that has just been freed, if it was exported.
    pub(crate) fn retire_if_exported(&mut self, id: BlockId) {
        let block = self.blocks.at_mut(id.0);
        if !block.exported {
            return;
        }
        if rule_holds(Rule::ExportedNotReused) {
            self.counts.kept.retired_bytes.increase(block.pool, block.bytes);
        } else {
            block.exported = false;
            self.segments.at_mut(block.segment.0).exported_count -= 1;
        }
    }

    /// Records that a block of the segment was freed, or no longer waits.
    pub(crate) fn note_leaving(&mut self, id: SegmentId) {
        let segment = self.segments.at(id.0);
        let private = segment.private.is_some();
        let may_leave = segment.exported_count > 0
            && segment.allocated_count == 0
            && !private
            && !segment.expandable;
        if may_leave && !self.leaving.contains(&id) {
            self.leaving.push(id);
        }
    }

    /// Returns whether the request gets a whole segment or nothing.
    pub(crate) fn keeps_whole(&self, request: &Request, block_bytes: u64) -> bool {
        self.keeps_whole_at(request.stage, block_bytes)
    }

    /// Returns whether a request at this stage gets a whole segment or nothing.
    #[inline]
    pub(crate) fn keeps_whole_at(&self, stage: Stage, block_bytes: u64) -> bool {
        self.whole_large
            && !is_small(block_bytes)
            && stage < Stage::TakeAny
            && rule_holds(Rule::WholeAfterExport)
    }

    /// Returns whether the block is a segment that could have been reserved for this request alone.
    pub(crate) fn is_whole_fit(&self, id: BlockId, block_bytes: u64) -> bool {
        let block = self.blocks.at(id.0);
        let whole = !block.is_split() && !block.expandable;
        whole && block.bytes <= own_segment_bytes(block_bytes)
    }

    fn is_retired(&self, id: SegmentId) -> bool {
        let segment = self.segments.at(id.0);
        if segment.private.is_some() {
            return false;
        }
        let mut blocks = self.blocks_from(segment.first).map(|id| self.blocks.at(id.0));
        blocks.all(|block| block.state == State::Free && block.private.is_none())
    }
}

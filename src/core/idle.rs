//! Memory that was not used for a while, which other processes on the device may need.
//!
//! Note [Idle memory]. The allocator has no clock; its caller knows how long a while is, and takes a
//! mark now and then. Idle since a mark is what has been free for every request ever since:
//! every free block keeps the clock of its last free, of the later one where blocks coalesce, and what is left of a
//! split block keeps that of the whole. So a segment of one free block that is older than the mark has
//! not been touched since, and all work with it is older than the mark too.
//!
//! Blocks that wait for something are not idle, and become free for every request only when that is over.

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::block::Block;
use crate::rules::{Rule, rule_holds};
use crate::types::{Mapping, Segment};

/// A moment of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IdleMark(pub(crate) u64);

impl IdleMark {
    /// Before anything.
    pub const NEVER: IdleMark = IdleMark(0);
}

impl Allocator {
    /// Now.
    pub fn idle_mark(&mut self) -> IdleMark {
        self.clock += 1;
        IdleMark(self.clock)
    }

    /// Takes the segments that are idle since the mark out of the allocator. Not chunks: they were
    /// reserved to be kept.
    pub fn release_idle(&mut self, mark: IdleMark) -> Vec<Segment> {
        if self.policy.chunk_bytes.is_some() { Vec::new() } else { self.release_unused(mark) }
    }

    /// The same, chunks as well: on demand.
    pub fn release_unused(&mut self, mark: IdleMark) -> Vec<Segment> {
        self.release_where(|allocator, segment| {
            let first = allocator.blocks.at(segment.first.0);
            !first.is_split() && is_idle(first, mark)
        })
    }

    /// The same for memory behind blocks in arenas.
    pub fn unmap_idle(&mut self, mark: IdleMark) -> Vec<Mapping> {
        self.unmap_where(|block| is_idle(block, mark))
    }
}

fn is_idle(block: &Block, mark: IdleMark) -> bool {
    let since = block.freed_at < mark.0 || !rule_holds(Rule::IdleSinceMark);
    block.is_free_everywhere() && !block.exported && since
}

//! Reserved segments at a moment, with their blocks.
//!
//! At the end these are the segments of the file. For an earlier moment the file has only the
//! requested sizes and addresses. The rest follows from the layout of allocators of PyTorch's kind,
//! including cachealloc: blocks are shown rounded up, and the gaps between them are free. The page
//! of the report does the same (`src/report/page/segments/reserved.js`) for the moments that its
//! reader chooses.

mod spans;
mod sweep;

use crate::lifetimes::{Lifetimes, Moment};
use crate::model::{Block, BlockState, Device, Segment, StackId, TextId};

use sweep::Sweep;

/// Requests are rounded up to a multiple of this.
const BLOCK_UNIT: u64 = 512;
/// Largest remainder that stays in the block, except in segments of small requests or growing
/// segments. If the memory beside it is free, the remainder counts as a part of that.
const REST_BYTES_MAX: u64 = 1 << 20;
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;

/// Computes the segments at ascending moments.
pub struct Reserved<'a> {
    device: &'a Device,
    lifetimes: &'a Lifetimes,
    spans: Vec<spans::Span>,
    /// The `spans` that exist at the current moment, by address.
    segments: Sweep,
    /// The `lifetimes` that exist at the current moment: held, or freed and possibly in use by a
    /// stream.
    blocks: Sweep,
}

impl<'a> Reserved<'a> {
    pub fn of(device: &'a Device, lifetimes: &'a Lifetimes) -> Reserved<'a> {
        let spans = spans::of(device);
        let segments =
            Sweep::of(spans.iter().map(|span| (span.segment.address, span.from, span.until)));
        // A block that has only waited for a stream since before the history is not the program's.
        let blocks = Sweep::of(lifetimes.all.iter().map(|life| {
            let until = if life.begin < life.end { life.reusable } else { life.begin };
            (life.address, life.begin, until)
        }));
        Reserved { device, lifetimes, spans, segments, blocks }
    }

    /// Returns the work of the last moment: the number of segments and blocks that were visited.
    pub fn work(&self) -> usize {
        self.segments.len() + self.blocks.len()
    }

    /// Returns the segments by address. Moments must not descend.
    pub fn at(&mut self, moment: Moment) -> Vec<Segment> {
        if moment >= self.lifetimes.last {
            return self.device.segments.clone();
        }
        let mut lives = self.blocks.at(moment).map(|life| &self.lifetimes.all[life]).peekable();
        let mut segments = Vec::new();
        for span in self.segments.at(moment) {
            let mut segment = self.spans[span].segment.clone();
            let mut filled = Filled::of(&segment);
            while lives.next_if(|life| life.address < segment.address).is_some() {}
            while let Some(life) = lives.next_if(|life| life.address < filled.end) {
                let next = lives.peek().map_or(u64::MAX, |next| next.address).min(filled.end);
                let room = next - life.address;
                let rounded = life.bytes.max(1).checked_next_multiple_of(BLOCK_UNIT);
                let is_held = moment < life.end;
                filled.push(Block {
                    address: life.address,
                    bytes: rounded.map_or(room, |bytes| bytes.min(room)),
                    requested_bytes: life.bytes,
                    state: if is_held { BlockState::Allocated } else { BlockState::Pending },
                    stack: life.stack,
                    category: life.category,
                });
            }
            filled.free_until(filled.end);
            segment.blocks = filled.blocks;
            segments.push(segment);
        }
        segments
    }
}

/// The blocks of a segment so far, which tile it up to `at`.
struct Filled {
    at: u64,
    end: u64,
    rest_bytes_max: u64,
    blocks: Vec<Block>,
}

impl Filled {
    fn of(segment: &Segment) -> Filled {
        let is_whole = segment.expandable || segment.bytes <= SMALL_SEGMENT_BYTES;
        let rest_bytes_max = if is_whole { 0 } else { REST_BYTES_MAX };
        Filled { at: segment.address, end: segment.end(), rest_bytes_max, blocks: Vec::new() }
    }

    fn push(&mut self, block: Block) {
        self.free_until(block.address);
        self.at = block.address.saturating_add(block.bytes);
        self.blocks.push(block);
    }

    fn free_until(&mut self, end: u64) {
        let gap = end.saturating_sub(self.at);
        match self.blocks.last_mut() {
            Some(last) if gap <= self.rest_bytes_max => last.bytes += gap,
            _ if gap > 0 => self.blocks.push(Block {
                address: self.at,
                bytes: gap,
                requested_bytes: 0,
                state: BlockState::Free,
                stack: StackId::NONE,
                category: TextId::EMPTY,
            }),
            _ => {}
        }
        self.at = end;
    }
}

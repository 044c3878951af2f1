//! Where in an arena a request needs the least memory: windows over holes and the free blocks
//! beside them.
//!
//! ```text
//!   | allocated | free |      hole      | free | allocated |        hole, to the end of the arena
//!               |<----------- run ------------>|           |<--- run, open at its right end -----
//!               |<- left window ->|
//!                          |<- right window -->|
//! ```

use alloc::vec::Vec;

use crate::allocator::Allocator;
use crate::arenas::{Arena, PAGE_BYTES};
use crate::types::{Address, BlockId, Mapping};

/// A window for one request.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// What must be mapped in it, by address, in whole pages.
    pub missing: Vec<Mapping>,
    /// The free blocks that it leans on.
    pub used: Vec<BlockId>,
    pub begin: u64,
}

impl Window {
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(|range| range.bytes).sum()
    }

    /// The best is the least: of what is missing, then of the addresses.
    pub(crate) fn rank(&self) -> (u64, u64) {
        (self.missing_bytes(), self.begin)
    }
}

/// A hole, or a free block.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begin: u64,
    end: u64,
    block: Option<BlockId>,
}

/// What is not a hole: a segment with its first and last block, or what is about to be mapped.
struct Occupied {
    begin: u64,
    end: u64,
    blocks: Option<(BlockId, BlockId)>,
}

/// Holes and free blocks that touch.
#[derive(Default, Debug)]
struct Run {
    pieces: Vec<Piece>,
    /// It ends where the arena ends.
    open: bool,
}

impl Allocator {
    /// By a walk over all of the arena. `alone`: free blocks do not count.
    pub(crate) fn place_in(&self, arena: &Arena, bytes: u64, alone: bool) -> Option<Window> {
        let runs = self.runs(arena, alone);
        runs.iter().flat_map(|run| run.places(bytes)).min_by_key(Window::rank)
    }

    fn runs(&self, arena: &Arena, alone: bool) -> Vec<Run> {
        let free = |id: BlockId| {
            let block = self.blocks.at(id.0);
            let counts = !alone && block.is_free_everywhere();
            counts.then_some(Piece { begin: block.address.0, end: block.end().0, block: Some(id) })
        };
        let mut runs = Vec::new();
        let mut run = Run::default();
        let mut cursor = arena.base.0;
        for Occupied { begin, end, blocks } in self.obstacles(arena) {
            run.add_hole(cursor, begin);
            cursor = end;
            let (first, last) = match blocks {
                Some((first, last)) => (free(first), free(last).filter(|_| first != last)),
                None => (None, None),
            };
            let whole = first.is_some_and(|piece| piece.end == end);
            run.pieces.extend(first);
            if !whole {
                runs.push(core::mem::take(&mut run));
                run.pieces.extend(last);
            }
        }
        run.add_hole(cursor, arena.end().0);
        run.open = cursor < arena.end().0;
        runs.push(run);
        runs
    }

    /// By address.
    fn obstacles(&self, arena: &Arena) -> Vec<Occupied> {
        let segments = self.segment_at.range(arena.base..arena.end()).map(|(base, id)| {
            let row = self.segments.at(id.0);
            Occupied { begin: base.0, end: row.end().0, blocks: Some((row.first, row.last)) }
        });
        let within = |mapping: &&Mapping| arena.base <= mapping.base && mapping.base < arena.end();
        let arriving = self.arenas.arriving.iter().filter(within);
        let arriving = arriving.map(|mapping| Occupied {
            begin: mapping.base.0,
            end: mapping.end().0,
            blocks: None,
        });
        let mut obstacles: Vec<_> = segments.chain(arriving).collect();
        obstacles.sort_unstable_by_key(|obstacle| obstacle.begin);
        obstacles
    }
}

impl Run {
    fn add_hole(&mut self, begin: u64, end: u64) {
        if begin < end {
            self.pieces.push(Piece { begin, end, block: None });
        }
    }

    /// The windows that are tried: at the run's left end, and at its right one if there is one.
    fn places(&self, bytes: u64) -> impl Iterator<Item = Window> {
        let begin = self.pieces.first().map_or(0, |piece| piece.begin);
        let end = self.pieces.last().map_or(0, |piece| piece.end);
        let fits = end - begin >= bytes;
        let left = fits.then(|| self.place(begin, begin + bytes));
        let right = (fits && !self.open).then(|| self.place(end - bytes, end));
        // Without a hole there is nothing to map, and a search finds the block.
        left.into_iter().chain(right).filter(|place| !place.missing.is_empty())
    }

    fn place(&self, begin: u64, end: u64) -> Window {
        let page_begin = begin / PAGE_BYTES * PAGE_BYTES;
        let page_end = end.next_multiple_of(PAGE_BYTES);
        let inside = self.pieces.iter().filter(|piece| piece.begin < end && piece.end > begin);
        let mut place = Window { missing: Vec::new(), used: Vec::new(), begin };
        for piece in inside {
            match piece.block {
                Some(block) => place.used.push(block),
                None => {
                    // Holes begin and end with pages.
                    let (from, to) = (piece.begin.max(page_begin), piece.end.min(page_end));
                    place.missing.push(Mapping { base: Address(from), bytes: to - from });
                }
            }
        }
        place
    }
}

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
use core::mem::take;

use crate::allocator::Allocator;
use crate::arenas::runs::{Kind, Runs, Shape};
use crate::arenas::{Arena, PAGE_BYTES};
use crate::block::Block;
use crate::types::{Address, BlockId, Mapping};

/// The most changes that wait for the next search.
const CHANGES_COUNT_MAX: usize = 64;

/// A window for one request.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// The ranges to map in it, by address, in whole pages.
    pub missing: Vec<Mapping>,
    /// The free blocks that it includes.
    pub used: Vec<BlockId>,
    pub begin: u64,
}

impl Window {
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(|range| range.bytes).sum()
    }

    /// The rank of a window, of which the least is best: by the missing bytes, then by address.
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

/// Memory that is not a hole: a segment with its first and last block, or a range about to be
/// mapped.
struct Occupied {
    begin: u64,
    end: u64,
    blocks: Option<(BlockId, BlockId)>,
}

/// Adjacent holes and free blocks.
#[derive(Default, Debug)]
struct Run {
    pieces: Vec<Piece>,
    /// Whether it ends where the arena ends.
    open: bool,
}

impl Allocator {
    /// Searches by a walk over the whole arena. With `alone`, free blocks do not count.
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

    /// Returns what is not a hole, by address.
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

    /// Returns the windows to try: at the run's left end, and at its right one if there is one.
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

impl Allocator {
    /// Searches as `place_in` does, where free blocks count.
    pub(crate) fn place_by_shape(&self, arena: &Arena, bytes: u64) -> Option<Window> {
        debug_assert!(arena.runs.changed.is_empty(), "looked at before");
        let least = Shape { bytes, kind: Kind::OneHole { left: 0, right: 0 }, open: false };
        let fitting = arena.runs.begins.range(least..);
        let places = fitting.flat_map(|(shape, begins)| {
            let begin = *begins.first().expect("a shape has a run");
            let right = (!shape.open).then(|| begin + shape.bytes - bytes);
            let lacks = |from_right| self.lacks(shape, begin, bytes, from_right);
            let left = Some(((lacks(false), begin), begin));
            let right = right.map(|at| ((lacks(true), at), at));
            left.into_iter().chain(right)
        });
        // Without a hole there is nothing to map, and a search finds the block.
        let best = places.filter(|((missing_bytes, _), _)| *missing_bytes > 0).min();
        best.map(|(_, begin)| self.window_at(begin, begin + bytes))
    }

    /// Returns how many bytes are missing at one end of a run.
    fn lacks(&self, shape: &Shape, begin: u64, bytes: u64, from_right: bool) -> u64 {
        match shape.kind {
            Kind::OneHole { left, right } => {
                let free = if from_right { right } else { left };
                let hole_bytes = shape.bytes - left - right;
                bytes.saturating_sub(free).next_multiple_of(PAGE_BYTES).min(hole_bytes)
            }
            Kind::Several { .. } => {
                let begin = if from_right { begin + shape.bytes - bytes } else { begin };
                self.window_at(begin, begin + bytes).missing_bytes()
            }
        }
    }

    /// Returns the window at these addresses of a run.
    fn window_at(&self, begin: u64, end: u64) -> Window {
        let mut place = Window { missing: Vec::new(), used: Vec::new(), begin };
        let mut hole = |from: u64, to: u64| {
            // Holes begin and end with pages.
            let (from, to) = (from / PAGE_BYTES * PAGE_BYTES, to.next_multiple_of(PAGE_BYTES));
            if from < to {
                place.missing.push(Mapping { base: Address(from), bytes: to - from });
            }
        };
        let before = self.segment_at.range(..=Address(begin)).next_back();
        let inside = self.segment_at.range(Address(begin + 1)..Address(end));
        let mut cursor = begin;
        for (base, id) in before.into_iter().chain(inside) {
            let row = self.segments.at(id.0);
            if row.end().0 <= begin {
                continue;
            }
            if cursor < base.0 {
                hole(cursor, base.0);
            }
            place.used.push(if base.0 < begin { row.last } else { row.first });
            cursor = row.end().0;
        }
        if cursor < end {
            hole(cursor, end);
        }
        place
    }

    /// Records that a block in an arena has become free for every request, or stopped being so.
    #[inline]
    pub(crate) fn note_end_changes(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        if block.expandable && changes_end(block) {
            let row = self.segments.at(block.segment.0);
            let (begin, end) = (row.base.0, row.end().0);
            self.note_changed(begin, end);
        }
    }

    /// Records that memory in this range of an arena is mapped or unmapped, or about to be mapped.
    #[cold]
    pub(crate) fn note_changed(&mut self, begin: u64, end: u64) {
        let within = |arena: &&mut Arena| arena.base.0 <= begin && begin < arena.end().0;
        let arena = self.arenas.list.iter_mut().find(within).expect("it lies in an arena");
        arena.runs.changed.insert((begin, end));
        if arena.runs.changed.len() > CHANGES_COUNT_MAX {
            self.look_at_changes();
        }
    }

    /// Examines the recorded changes. Call it before a search.
    pub(crate) fn look_at_changes(&mut self) {
        for number in 0..self.arenas.list.len() {
            let arena = &mut self.arenas.list[number];
            let (changed, mut runs) = (take(&mut arena.runs.changed), take(&mut arena.runs));
            let arena = &self.arenas.list[number];
            for (begin, end) in changed {
                self.look_at(arena, &mut runs, begin, end);
            }
            self.arenas.list[number].runs = runs;
        }
    }

    fn look_at(&self, arena: &Arena, runs: &mut Runs, begin: u64, end: u64) {
        let (begin, end) = self.whole(runs, begin, end);
        let before = runs.occupied.range(..begin).next_back().map(|(_, end)| *end);
        let behind = runs.occupied.range(end..).next().map(|(begin, _)| *begin);
        let from = before.unwrap_or(arena.base.0);
        let to = behind.unwrap_or(arena.end().0);
        runs.forget(from, to, (begin, end));
        let mut cursor = from;
        for (begin, end) in self.occupied_in(arena, begin, end) {
            runs.occupied.insert(begin, end);
            runs.insert(cursor, self.shape(arena, cursor, begin));
            cursor = end;
        }
        runs.insert(cursor, self.shape(arena, cursor, to));
    }

    /// Extends the range, so that nothing lies across its ends.
    fn whole(&self, runs: &Runs, mut begin: u64, mut end: u64) -> (u64, u64) {
        let around = |address: u64| {
            let (base, id) = self.segment_at.range(..Address(address)).next_back()?;
            let segment_end = self.segments.at(id.0).end().0;
            let segment = (segment_end > address).then_some((base.0, segment_end));
            let occupied = runs.occupied.range(..address).next_back();
            let occupied = occupied.map(|(begin, end)| (*begin, *end));
            segment.or(occupied.filter(|(_, end)| *end > address))
        };
        while let Some((wider, _)) = around(begin) {
            begin = wider;
        }
        while let Some((_, wider)) = around(end) {
            end = wider;
        }
        (begin, end)
    }

    /// Returns the memory that is in no run, by address.
    fn occupied_in(&self, arena: &Arena, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let segments = self.segment_at.range(Address(begin)..Address(end));
        let segments = segments.filter_map(|(base, id)| {
            let row = self.segments.at(id.0);
            let [first, last] = [row.first, row.last].map(|id| self.blocks.at(id.0));
            let free = |block: &Block| if block.is_free_everywhere() { block.bytes } else { 0 };
            let (left, right) = (base.0 + free(first), row.end().0.saturating_sub(free(last)));
            (left < right).then_some((left, right))
        });
        let within = |range: &(u64, u64)| begin <= range.0 && range.0 < end;
        let arriving = self.arenas.arriving.iter().map(|mapping| (mapping.base.0, mapping.end().0));
        let mut all: Vec<_> = segments.chain(arriving.filter(within)).collect();
        all.retain(|(begin, _)| arena.base.0 <= *begin && *begin < arena.end().0);
        all.sort_unstable();
        all
    }

    /// Returns the shape of the run between these addresses, or `None` if it has no hole.
    fn shape(&self, arena: &Arena, begin: u64, end: u64) -> Option<Shape> {
        let before = self.segment_at.range(..=Address(begin)).next_back();
        let before = before.map(|(_, id)| self.segments.at(id.0).end().0);
        let hole_begin = before.filter(|end| *end > begin).unwrap_or(begin);
        if hole_begin >= end {
            return None;
        }
        let behind = self.segment_at.range(Address(hole_begin)..Address(end)).next();
        let (hole_end, one) = match behind {
            None => (end, true),
            Some((base, id)) => (base.0, self.segments.at(id.0).end().0 >= end),
        };
        let kind = match one {
            true => Kind::OneHole { left: hole_begin - begin, right: end - hole_end },
            false => Kind::Several { begin },
        };
        let last = self.segment_at.range(..Address(end)).next_back();
        let last_end = last.map_or(0, |(_, id)| self.segments.at(id.0).end().0);
        Some(Shape { bytes: end - begin, kind, open: end == arena.end().0 && last_end < end })
    }
}

/// Returns whether the block is free for every request at an end of a segment.
fn changes_end(block: &Block) -> bool {
    (block.previous.is_none() || block.next.is_none()) && block.is_free_everywhere()
}

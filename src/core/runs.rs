//! Where in an arena a request needs the least memory, found without a walk over its segments.
//!
//! Most runs (`holes`) are one hole with a free block on either side, or none. Runs of one *shape*, as long and with as
//! much that is free at either end, lack the same for a request, so that only the lowest one of each shape is looked at. There
//! are few shapes: free blocks beside holes are what is left where whole pages went, and holes of k different lengths are
//! k * k pages long together.
//!
//! What changes is noted, and looked at by the next search: at most so many changes wait for that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::take;

use crate::allocator::Allocator;
use crate::arenas::{Arena, PAGE_BYTES};
use crate::block::Block;
use crate::holes::Window;
use crate::types::{Address, BlockId, Mapping};

const CHANGES_COUNT_MAX: usize = 64;

/// The runs of an arena.
#[derive(Clone, Default, Debug)]
pub(crate) struct Runs {
    /// What lies between two of them, by where it begins, and where it ends.
    occupied: BTreeMap<u64, u64>,
    /// The runs with a hole, by where they begin.
    shapes: BTreeMap<u64, Shape>,
    /// And the other way round.
    begins: BTreeMap<Shape, BTreeSet<u64>>,
    /// Ranges in which something has changed.
    changed: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Shape {
    bytes: u64,
    kind: Kind,
    /// It ends with a hole, where the arena ends.
    open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// One hole, and so much that is free before and behind it.
    OneHole { left: u64, right: u64 },
    /// The one that begins here, with free segments between its holes.
    Several { begin: u64 },
}

impl Allocator {
    /// As `place_in`, where free blocks count.
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

    /// How much is missing at one end of a run.
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

    /// These addresses of a run.
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

    /// A block in an arena has become free for every request, or is that no more.
    #[inline]
    pub(crate) fn note_end_changes(&mut self, id: BlockId) {
        let block = self.blocks.at(id.0);
        if block.expandable && changes_end(block) {
            let row = self.segments.at(block.segment.0);
            let (begin, end) = (row.base.0, row.end().0);
            self.note_changed(begin, end);
        }
    }

    /// In this range of an arena memory comes or goes, or is about to come.
    #[cold]
    pub(crate) fn note_changed(&mut self, begin: u64, end: u64) {
        let within = |arena: &&mut Arena| arena.base.0 <= begin && begin < arena.end().0;
        let arena = self.arenas.list.iter_mut().find(within).expect("it lies in an arena");
        arena.runs.changed.insert((begin, end));
        if arena.runs.changed.len() > CHANGES_COUNT_MAX {
            self.look_at_changes();
        }
    }

    /// Call before a search.
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

    /// The range, so that nothing lies across its ends.
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

    /// What is in no run, by address.
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

    /// Of the run from here to there; None: it has no hole.
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

impl Runs {
    /// Forgets the runs from here to there, and what is occupied in a range between.
    fn forget(&mut self, from: u64, to: u64, (begin, end): (u64, u64)) {
        let runs: Vec<u64> = self.shapes.range(from..to).map(|(begin, _)| *begin).collect();
        for begin in runs {
            let shape = self.shapes.remove(&begin).expect("just found");
            let begins = self.begins.get_mut(&shape).expect("a run has a shape");
            begins.remove(&begin);
            if begins.is_empty() {
                self.begins.remove(&shape);
            }
        }
        let occupied: Vec<u64> = self.occupied.range(begin..end).map(|(begin, _)| *begin).collect();
        occupied.iter().for_each(|begin| _ = self.occupied.remove(begin));
    }

    fn insert(&mut self, begin: u64, shape: Option<Shape>) {
        let Some(shape) = shape else { return };
        self.shapes.insert(begin, shape);
        self.begins.entry(shape).or_default().insert(begin);
    }
}

/// Whether it is free for every request at an end of a segment.
fn changes_end(block: &Block) -> bool {
    (block.previous.is_none() || block.next.is_none()) && block.is_free_everywhere()
}

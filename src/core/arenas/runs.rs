//! Where in an arena a request needs the least memory, found without a walk over its segments.
//!
//! Most runs (`holes`) are one hole with a free block on either side, or none. Runs of one *shape*,
//! as long and with as much that is free at either end, lack the same for a request, so that only
//! the lowest one of each shape is looked at. There are few shapes: free blocks beside holes are
//! what is left where whole pages went, and holes of k different lengths are k * k pages long
//! together.
//!
//! What changes is noted, and looked at by the next search: at most so many changes wait for that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
/// The runs of an arena.
#[derive(Clone, Default, Debug)]
pub(crate) struct Runs {
    /// What lies between two of them, by where it begins, and where it ends.
    pub occupied: BTreeMap<u64, u64>,
    /// The runs with a hole, by where they begin.
    pub shapes: BTreeMap<u64, Shape>,
    /// And the other way round.
    pub begins: BTreeMap<Shape, BTreeSet<u64>>,
    /// Ranges in which something has changed.
    pub changed: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    pub bytes: u64,
    pub kind: Kind,
    /// It ends with a hole, where the arena ends.
    pub open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// One hole, and so much that is free before and behind it.
    OneHole { left: u64, right: u64 },
    /// The one that begins here, with free segments between its holes.
    Several { begin: u64 },
}

impl Runs {
    /// Forgets the runs from here to there, and what is occupied in a range between.
    pub(crate) fn forget(&mut self, from: u64, to: u64, (begin, end): (u64, u64)) {
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

    pub(crate) fn insert(&mut self, begin: u64, shape: Option<Shape>) {
        let Some(shape) = shape else { return };
        self.shapes.insert(begin, shape);
        self.begins.entry(shape).or_default().insert(begin);
    }
}

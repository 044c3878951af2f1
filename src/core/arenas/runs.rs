//! Where in an arena a request needs the least memory, found without a walk over its segments.
//!
//! Most runs (`holes`) are one hole with a free block on either side, or none. Runs of one *shape*,
//! equally long and with equally much free memory at either end, lack the same for a request, so
//! only the lowest one of each shape is examined. There are few shapes: free blocks beside holes
//! are the remainders where whole pages were unmapped, and holes of k different lengths are k * k
//! pages long together.
//!
//! Changes are recorded, and examined by the next search: a limited number of changes waits for
//! that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
/// The runs of an arena.
#[derive(Clone, Default, Debug)]
pub(crate) struct Runs {
    /// The memory between two runs, by where it begins, and where it ends.
    pub occupied: BTreeMap<u64, u64>,
    /// The runs with a hole, by where they begin.
    pub shapes: BTreeMap<u64, Shape>,
    /// The beginnings of the runs, by shape.
    pub begins: BTreeMap<Shape, BTreeSet<u64>>,
    /// Ranges in which something has changed.
    pub changed: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    pub bytes: u64,
    pub kind: Kind,
    /// Whether it ends with a hole, where the arena ends.
    pub open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// One hole, with this much free memory before and after it.
    OneHole { left: u64, right: u64 },
    /// The run that begins here, with free segments between its holes.
    Several { begin: u64 },
}

impl Runs {
    /// Forgets the runs between these addresses, and the occupied memory in a range inside.
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

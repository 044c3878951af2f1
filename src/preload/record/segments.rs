//! Memory from the driver, by address, with a copy in rows of the persistent history.

use core::sync::atomic::{Ordering, compiler_fence};
use std::collections::BTreeMap;

use cachealloc_history::persistent::layout::SegmentRow;
use cachealloc_history::persistent::take_out;
use cachealloc_history::{Rows, StackId};

#[derive(Default)]
pub(super) struct Segments {
    there: BTreeMap<u64, SegmentRow>,
    persistent: Option<Persistent>,
}

/// The rows of the persistent history.
struct Persistent {
    rows: Rows<SegmentRow>,
    /// The row of each address.
    places: BTreeMap<u64, usize>,
    free: Vec<usize>,
}

impl Segments {
    pub(super) fn persistent(rows: Rows<SegmentRow>) -> Segments {
        let persistent = Persistent { rows, places: BTreeMap::new(), free: Vec::new() };
        Segments { there: BTreeMap::new(), persistent: Some(persistent) }
    }

    pub(super) fn get(&self, address: u64) -> Option<&SegmentRow> {
        self.there.get(&address)
    }

    pub(super) fn insert(&mut self, row: SegmentRow) {
        self.there.insert(row.address, row);
        if let Some(persistent) = &mut self.persistent {
            persistent.insert(row);
        }
    }

    /// Removes the segment at this address, which has ended.
    pub(super) fn remove(&mut self, address: u64) -> Option<SegmentRow> {
        let row = self.there.remove(&address)?;
        if let Some(persistent) = &mut self.persistent {
            persistent.remove(address);
        }
        Some(row)
    }

    /// Removes a range; the rest of the segments around it stays.
    pub(super) fn take_out(&mut self, address: u64, bytes: u64) {
        let touched = take_out(&mut self.there, address, bytes);
        if let Some(persistent) = &mut self.persistent {
            touched.iter().for_each(|(row, left)| persistent.replace(row.address, left));
        }
    }

    /// Notes that a block, requested by this stack, covers the segment.
    pub(super) fn set_block(&mut self, address: u64, stack: StackId, flags: u32) {
        if let Some(row) = self.there.get_mut(&address) {
            row.stack = stack;
        }
        if let Some(row) = self.persistent.as_mut().and_then(|persistent| persistent.row(address)) {
            row.stack = stack;
            compiler_fence(Ordering::SeqCst);
        }
        self.set_flags(address, flags);
    }

    pub(super) fn set_flags(&mut self, address: u64, flags: u32) {
        if let Some(row) = self.there.get_mut(&address) {
            row.flags = flags;
        }
        if let Some(persistent) = &mut self.persistent {
            persistent.set_flags(address, flags);
        }
    }
}

impl Persistent {
    fn insert(&mut self, row: SegmentRow) {
        let place = self.free.pop().unwrap_or(self.rows.len());
        if !self.rows.grow_to(place + 1) {
            return crate::record::stop_short();
        }
        if let Some(there) = self.rows.get_mut(place) {
            *there = SegmentRow { flags: 0, ..row };
            // See Note [Killed at any instruction].
            compiler_fence(Ordering::SeqCst);
            there.flags = row.flags;
        }
        self.places.insert(row.address, place);
    }

    /// Replaces a segment by its remaining parts. They are added before the segment is removed, the
    /// last part first: at any instruction, removing the range from the rows gives the same result.
    fn replace(&mut self, address: u64, left: &[SegmentRow]) {
        let before = self.places.remove(&address);
        left.iter().rev().for_each(|row| self.insert(*row));
        if let Some(row) = before.and_then(|place| self.rows.get_mut(place)) {
            row.flags = 0;
            compiler_fence(Ordering::SeqCst);
        }
        self.free.extend(before);
    }

    fn remove(&mut self, address: u64) {
        self.set_flags(address, 0);
        self.free.extend(self.places.remove(&address));
    }

    fn row(&mut self, address: u64) -> Option<&mut SegmentRow> {
        let place = *self.places.get(&address)?;
        self.rows.get_mut(place)
    }

    fn set_flags(&mut self, address: u64, flags: u32) {
        if let Some(row) = self.row(address) {
            row.flags = flags;
            compiler_fence(Ordering::SeqCst);
        }
    }
}

//! A copy of a ring as of one moment, the *cut*, made while entries continue to arrive: some at a
//! time, each time under the ring's lock, so that no thread waits long.
//!
//! An entry that is overwritten before it was copied counts as dropped. So do all older entries,
//! because a history has no gap.

use crate::entry::Entry;
use crate::ring::Ring;
use crate::ring::packed::PackedEntries;
use crate::rows::CHUNK_ROWS;

pub struct RingCopy {
    /// Which ring it is; see [`Ring::identity`].
    ring: u64,
    /// Number of the next entry to copy, counted from the first one ever pushed, and of the first
    /// one after the cut.
    next: u64,
    end: u64,
    /// Time of the last entry before the cut.
    newest_ns: u64,
    /// Entries that were copied and are not packed yet. The list never grows.
    some: Vec<Entry>,
    packed: PackedEntries,
}

/// The entries of one ring.
#[derive(Default)]
pub struct RingEntries {
    /// Entries, oldest first.
    pub entries: PackedEntries,
    /// Number of entries lost, always the oldest ones.
    pub dropped_count: u64,
    /// If all entries were lost: time at which the ring was still complete.
    pub lost_until_ns: u64,
}

impl RingCopy {
    /// Bytes that `begin` allocates.
    pub fn bytes(ring: &Ring) -> usize {
        ring.len().min(CHUNK_ROWS) * size_of::<Entry>()
    }

    /// Makes the cut: the entries that the ring has now are to be copied. Those that the next
    /// entries would overwrite are copied at once.
    pub fn begin(ring: &Ring) -> RingCopy {
        let next = ring.dropped_count();
        let mut copy = RingCopy {
            ring: ring.identity(),
            next,
            end: next + ring.len() as u64,
            newest_ns: ring.newest_ns(),
            some: Vec::with_capacity(ring.len().min(CHUNK_ROWS)),
            packed: PackedEntries::default(),
        };
        copy.copy(Some(ring));
        copy
    }

    /// Copies some more entries, which `pack` must have asked for. Allocates nothing.
    pub fn copy(&mut self, ring: Option<&Ring>) {
        self.some.clear();
        let Some(ring) = ring.filter(|ring| ring.identity() == self.ring) else {
            return self.lose_until(self.end);
        };
        if ring.dropped_count() > self.next {
            self.lose_until(ring.dropped_count().min(self.end));
        }
        let count = (self.end - self.next).min(self.some.capacity() as u64) as usize;
        let first = (self.next - ring.dropped_count().min(self.next)) as usize;
        self.some.extend(ring.iter_from(first).take(count));
        self.next += count as u64;
    }

    /// Packs the copied entries. Returns whether more entries are to be copied.
    pub fn pack(&mut self) -> bool {
        self.some.iter().for_each(|entry| self.packed.push(entry));
        self.some.clear();
        self.next < self.end
    }

    /// Returns the copied entries.
    pub fn finish(mut self) -> RingEntries {
        self.pack();
        let dropped_count = self.next - self.packed.len() as u64;
        let lost = self.packed.is_empty() && self.end > 0;
        let lost_until_ns = if lost { self.newest_ns + 1 } else { 0 };
        RingEntries { entries: self.packed, dropped_count, lost_until_ns }
    }

    fn lose_until(&mut self, next: u64) {
        self.packed.clear();
        self.next = next;
    }
}

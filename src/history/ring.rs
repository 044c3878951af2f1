//! The latest entries of one device, up to a bound.
//!
//! The ring allocates as entries arrive, never more than twice what they need: a bound of a million
//! costs nothing in a process that allocates ten times. If an allocation fails, the ring keeps its
//! current length: the program must not fail because its history grew.
//!
//! * R1: no more entries than the bound, and the oldest is at `oldest`.
//! * R2: times strictly increase from the oldest to the newest.
//! * R3: everything ever pushed since the last `clear` is either kept or counted as dropped.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crate::entry::{Action, Entry, NO_RANGE, StackId};
use crate::rows::{ChunkAllocator, Rows};

pub(crate) mod copy;
pub(crate) mod packed;

pub struct Ring {
    identity: u64,
    entries: Rows<Entry>,
    /// Index of the oldest entry; 0 until the bound is reached.
    oldest: usize,
    entries_max: usize,
    dropped_count: u64,
    pushed_count: u64,
    last_time_ns: u64,
    /// Set to the number of entries pushed so far, after the entry is stored: a reader finds
    /// complete entries even if the process was killed at any instruction.
    told: Option<&'static AtomicU64>,
}

impl Ring {
    /// Creates a ring. A bound of 0 counts as 1, as in PyTorch.
    pub fn new(entries_max: usize) -> Ring {
        Ring {
            identity: new_identity(),
            entries: Rows::new(),
            oldest: 0,
            entries_max: entries_max.max(1),
            dropped_count: 0,
            pushed_count: 0,
            last_time_ns: 0,
            told: None,
        }
    }

    /// Creates a ring in memory that survives the process, as long as the allocator provides it.
    pub fn persistent(
        entries_max: usize,
        allocator: Box<dyn ChunkAllocator<Entry>>,
        told: &'static AtomicU64,
    ) -> Ring {
        Ring { entries: Rows::allocated_by(allocator), told: Some(told), ..Ring::new(entries_max) }
    }

    /// Stores the entry; at the bound, it replaces the oldest. Returns the time assigned to the
    /// entry: at least one nanosecond after the previous entry, so that times determine the order
    /// of entries.
    pub fn push(&mut self, mut entry: Entry) -> u64 {
        entry.time_ns = entry.time_ns.max(self.last_time_ns.saturating_add(1));
        self.last_time_ns = entry.time_ns;
        self.pushed_count += 1;
        let has_room = self.entries.len() < self.entries_max;
        if !(has_room && self.entries.push(entry, self.entries_max)) {
            self.overwrite(entry);
        }
        if let Some(told) = self.told {
            compiler_fence(Ordering::SeqCst);
            told.store(self.pushed_count, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
        entry.time_ns
    }

    /// Returns the entries, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> + Clone {
        self.iter_from(0)
    }

    /// Returns the entries without the oldest ones.
    pub(crate) fn iter_from(&self, first: usize) -> impl ExactSizeIterator<Item = &Entry> + Clone {
        let len = self.entries.len();
        let at = move |index| if index < len { index } else { index - len };
        // Every index is below the length.
        let entry = move |index| self.entries.get(at(self.oldest + index)).unwrap_or(&NO_ENTRY);
        (first..len).map(entry)
    }

    /// Returns a number that no other ring has, and that changes when the ring is cleared.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns the time of the last entry pushed.
    pub(crate) fn newest_ns(&self) -> u64 {
        self.last_time_ns
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Number of entries lost since the last `clear`, always the oldest ones.
    pub fn dropped_count(&self) -> u64 {
        self.dropped_count
    }

    pub fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
    }

    /// Removes all entries and frees their memory. Times continue to increase.
    pub fn clear(&mut self) {
        if let Some(told) = self.told {
            told.store(0, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
        self.identity = new_identity();
        self.entries.clear();
        self.oldest = 0;
        self.dropped_count = 0;
        self.pushed_count = 0;
    }

    /// Checks the invariants, for tests.
    ///
    /// # Panics
    ///
    /// Panics with the number of the first invariant that does not hold.
    pub fn check(&self) {
        let len = self.entries.len();
        assert!(len <= self.entries_max, "R1: {len} entries, the bound is {}", self.entries_max);
        assert!(self.oldest < len.max(1), "R1: the oldest of {len} is at {}", self.oldest);
        let mut last_time_ns = 0;
        for entry in self.iter() {
            assert!(entry.time_ns > last_time_ns, "R2: {entry:?} is not after {last_time_ns}");
            last_time_ns = entry.time_ns;
        }
        assert!(last_time_ns <= self.last_time_ns, "R2: the newest is at {last_time_ns}");
        let counted = self.dropped_count + len as u64;
        assert!(counted == self.pushed_count, "R3: {counted} of {} known", self.pushed_count);
    }

    fn overwrite(&mut self, entry: Entry) {
        self.dropped_count += 1;
        // Without memory for even one entry, the new entry is the one dropped.
        if let Some(oldest) = self.entries.get_mut(self.oldest) {
            *oldest = entry;
            self.oldest += 1;
            if self.oldest == self.entries.len() {
                self.oldest = 0;
            }
            // A ring that could not grow stays as it is: growing later would break the order.
            self.entries_max = self.entries.len();
        }
    }
}

fn new_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const NO_ENTRY: Entry = Entry {
    time_ns: 0,
    address: 0,
    bytes: 0,
    stream: 0,
    stack: StackId::NONE,
    action: Action::Alloc,
    entered: 0,
    range: NO_RANGE,
};

//! The latest entries of one device, a bounded number of them.
//!
//! Memory is taken as entries come, never more than double of what they need: a bound of a million
//! costs nothing in a process that allocates ten times. Where no memory is to be had, the ring
//! stays as long as it is: the program must not end because its history grew.
//!
//! * R1: no more entries than the bound, and the oldest is at `oldest`.
//! * R2: times strictly increase from the oldest to the newest.
//! * R3: everything ever pushed since the last `clear` is either kept or counted as dropped.

use crate::entry::Entry;

pub struct Ring {
    entries: Vec<Entry>,
    /// Where the oldest entry is. 0 until the bound is reached.
    oldest: usize,
    entries_max: usize,
    dropped_count: u64,
    pushed_count: u64,
    last_time_ns: u64,
}

impl Ring {
    /// A bound of 0 is taken as 1, as PyTorch does.
    pub fn new(entries_max: usize) -> Ring {
        Ring {
            entries: Vec::new(),
            oldest: 0,
            entries_max: entries_max.max(1),
            dropped_count: 0,
            pushed_count: 0,
            last_time_ns: 0,
        }
    }

    /// Keeps the entry, in place of the oldest where the bound is reached. Answers the time it was
    /// given: at least one nanosecond after the entry before, so that the order of entries can be
    /// told from their times.
    pub fn push(&mut self, mut entry: Entry) -> u64 {
        entry.time_ns = entry.time_ns.max(self.last_time_ns.saturating_add(1));
        self.last_time_ns = entry.time_ns;
        self.pushed_count += 1;
        if self.entries.len() < self.entries_max && self.has_room() {
            self.entries.push(entry);
        } else {
            self.overwrite(entry);
        }
        entry.time_ns
    }

    /// Oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> + Clone {
        let (newer, older) = self.entries.split_at(self.oldest);
        Chain { older: older.iter(), newer: newer.iter() }
    }

    /// The entries, oldest first, for a snapshot.
    pub fn to_vec(&self) -> Vec<Entry> {
        let (newer, older) = self.entries.split_at(self.oldest);
        [older, newer].concat()
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

    /// How many entries were lost since the last `clear`, always the oldest ones.
    pub fn dropped_count(&self) -> u64 {
        self.dropped_count
    }

    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Forgets all entries and gives their memory back. Time goes on.
    pub fn clear(&mut self) {
        self.entries = Vec::new();
        self.oldest = 0;
        self.dropped_count = 0;
        self.pushed_count = 0;
    }

    /// Panics with the number of the first invariant that does not hold. For tests.
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

    /// Makes room for one more entry; says whether there is any.
    fn has_room(&mut self) -> bool {
        let len = self.entries.len();
        if len < self.entries.capacity() {
            return true;
        }
        let more = len.max(ENTRIES_FIRST).min(self.entries_max - len);
        self.entries.try_reserve_exact(more).is_ok()
    }

    fn overwrite(&mut self, entry: Entry) {
        self.dropped_count += 1;
        // Without memory for even one entry, this one is what is dropped.
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

/// How many entries the first memory is for.
const ENTRIES_FIRST: usize = 256;

/// `Iterator::chain` does not know its length.
#[derive(Clone)]
struct Chain<'a> {
    older: std::slice::Iter<'a, Entry>,
    newer: std::slice::Iter<'a, Entry>,
}

impl<'a> Iterator for Chain<'a> {
    type Item = &'a Entry;

    fn next(&mut self) -> Option<&'a Entry> {
        self.older.next().or_else(|| self.newer.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.older.len() + self.newer.len();
        (len, Some(len))
    }
}

impl ExactSizeIterator for Chain<'_> {}

//! The entries of a device, packed into 32 bytes each, because files have millions.
//!
//! The other fields of [`Entry`] have few different values together, as most programs use few
//! streams, pools and texts. Each combination is stored once.

use std::collections::HashMap;
use std::ops::Range;
use std::slice;

use super::{Action, Entry, PoolId, StackId, TextId};

/// A list of entries. They are packed and unpacked by value.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    all: Vec<Packed>,
    kinds: Vec<Kind>,
    numbers: HashMap<Kind, u32>,
    /// Number of the last kind of each action, which is the kind of most entries that follow.
    latest: [u32; ACTIONS_COUNT],
}

const ACTIONS_COUNT: usize = Action::Other as usize + 1;

#[derive(Clone, Copy, Debug)]
struct Packed {
    time_us: u64,
    address: u64,
    bytes: u64,
    stack: StackId,
    /// Index in [`Entries::kinds`].
    kind: u32,
}

const _: () = assert!(size_of::<Packed>() == 32);

/// The fields that many entries share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Kind {
    stream: u64,
    category: TextId,
    compile_context: TextId,
    user_metadata: TextId,
    pool: PoolId,
    action: Action,
    entered: u8,
}

impl Entries {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns an entry.
    ///
    /// # Panics
    ///
    /// Panics if there is none with this index.
    pub fn at(&self, index: usize) -> Entry {
        unpacked(&self.all[index], &self.kinds)
    }

    pub fn get(&self, index: usize) -> Option<Entry> {
        self.all.get(index).map(|packed| unpacked(packed, &self.kinds))
    }

    pub fn first(&self) -> Option<Entry> {
        self.get(0)
    }

    pub fn last(&self) -> Option<Entry> {
        self.iter().next_back()
    }

    pub fn iter(&self) -> Iter<'_> {
        self.range(0..self.len())
    }

    /// Returns the entries with these indices.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer entries.
    pub fn range(&self, range: Range<usize>) -> Iter<'_> {
        Iter { all: self.all[range].iter(), kinds: &self.kinds }
    }

    /// Returns the number of entries up to the first one for which `is_before` is false, if all
    /// for which it is true come first.
    pub fn partition_point(&self, is_before: impl Fn(&Entry) -> bool) -> usize {
        self.all.partition_point(|packed| is_before(&unpacked(packed, &self.kinds)))
    }

    pub fn push(&mut self, entry: Entry) {
        let packed = self.packed(entry);
        self.all.push(packed);
    }

    /// Replaces an entry.
    ///
    /// # Panics
    ///
    /// Panics if there is none with this index.
    pub fn set(&mut self, index: usize, entry: Entry) {
        self.all[index] = self.packed(entry);
    }

    /// Replaces each stack.
    pub fn map_stacks(&mut self, new: impl Fn(StackId) -> StackId) {
        self.all.iter_mut().for_each(|packed| packed.stack = new(packed.stack));
    }

    /// Replaces two successive entries by one where `merged` returns it. The first of them may
    /// have been merged before.
    pub fn merge(&mut self, merged: impl Fn(Entry, Entry) -> Option<Entry>) {
        let mut kept = 0usize;
        for index in 0..self.len() {
            let before = kept.checked_sub(1).map(|before| self.at(before));
            match before.and_then(|before| merged(before, self.at(index))) {
                Some(entry) => self.set(kept - 1, entry),
                None => {
                    self.all[kept] = self.all[index];
                    kept += 1;
                }
            }
        }
        self.all.truncate(kept);
        self.all.shrink_to_fit();
    }

    fn packed(&mut self, entry: Entry) -> Packed {
        let Entry { time_us, address, bytes, stack, .. } = entry;
        Packed { time_us, address, bytes, stack, kind: self.kind_of(&entry) }
    }

    fn kind_of(&mut self, entry: &Entry) -> u32 {
        let Entry {
            stream, category, compile_context, user_metadata, pool, action, entered, ..
        } = *entry;
        let kind = Kind { stream, category, compile_context, user_metadata, pool, action, entered };
        let latest = self.latest[action as usize];
        if self.kinds.get(latest as usize) == Some(&kind) {
            return latest;
        }
        let next =
            u32::try_from(self.kinds.len()).expect("fewer than four billion fit into memory");
        let number = *self.numbers.entry(kind).or_insert(next);
        if number == next {
            self.kinds.push(kind);
        }
        self.latest[action as usize] = number;
        number
    }
}

fn unpacked(packed: &Packed, kinds: &[Kind]) -> Entry {
    let Packed { time_us, address, bytes, stack, kind } = *packed;
    let Kind { stream, category, compile_context, user_metadata, pool, action, entered } =
        kinds[kind as usize];
    Entry {
        time_us,
        address,
        bytes,
        stream,
        stack,
        category,
        compile_context,
        user_metadata,
        pool,
        action,
        entered,
    }
}

impl Extend<Entry> for Entries {
    fn extend<T: IntoIterator<Item = Entry>>(&mut self, entries: T) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }
}

impl FromIterator<Entry> for Entries {
    fn from_iter<T: IntoIterator<Item = Entry>>(entries: T) -> Entries {
        let mut all = Entries::default();
        all.extend(entries);
        all
    }
}

impl<'a> IntoIterator for &'a Entries {
    type Item = Entry;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct Iter<'a> {
    all: slice::Iter<'a, Packed>,
    kinds: &'a [Kind],
}

impl Iterator for Iter<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        self.all.next().map(|packed| unpacked(packed, self.kinds))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.all.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Entry> {
        self.all.next_back().map(|packed| unpacked(packed, self.kinds))
    }
}

impl ExactSizeIterator for Iter<'_> {}

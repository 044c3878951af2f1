//! Merges the entries of a device from the rings of its contexts. Each context has a ring, and a
//! segment moves between contexts. Entries that one ring still has from a time that another ring
//! has lost would be inconsistent, so they are dropped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::entry::{Action, Entry};
use crate::ring::copy::RingEntries;
use crate::ring::packed::PackedEntries;
use crate::snapshot::{Device, EntryList, HOST_DEVICE};

pub struct RingMerge {
    devices: Vec<Merged>,
    host: Merged,
    from_start: bool,
}

#[derive(Default)]
struct Merged {
    device: Device<MergedEntries>,
    /// Time from which the history is complete.
    oldest_ns: u64,
}

/// The entries of several lists by time, without the oldest ones. They are merged each time they
/// are read, because a merged list would need as much memory again.
#[derive(Clone, Default)]
pub struct MergedEntries {
    lists: Vec<PackedEntries>,
    /// Number of the oldest entries to leave out.
    left_out: usize,
    /// Whether only the second of the two entries in a file that the first one stands for is kept.
    first_is_half: bool,
}

impl RingMerge {
    /// Creates an empty merge. `from_start`: everything that ever happened was recorded.
    pub fn new(from_start: bool) -> RingMerge {
        RingMerge { devices: Vec::new(), host: Merged::default(), from_start }
    }

    /// Adds the entries of one ring. `device` is an ordinal, or [`HOST_DEVICE`].
    pub fn add(&mut self, device: u32, ring: RingEntries) {
        let RingEntries { entries, dropped_count, lost_until_ns } = ring;
        let complete = dropped_count == 0 && self.from_start;
        let oldest_ns = entries.iter().next().map_or(lost_until_ns, |oldest| oldest.time_ns);
        let of = self.add_to(device, entries);
        if !complete {
            of.oldest_ns = oldest_ns.max(of.oldest_ns);
        }
        of.device.dropped_count += dropped_count;
    }

    /// Adds entries that no ring lost, oldest first.
    pub fn add_others(&mut self, device: u32, entries: PackedEntries) {
        self.add_to(device, entries);
    }

    fn add_to(&mut self, device: u32, entries: PackedEntries) -> &mut Merged {
        let of = match device {
            HOST_DEVICE => &mut self.host,
            ordinal => {
                let ordinal = ordinal as usize;
                if self.devices.len() <= ordinal {
                    self.devices.resize_with(ordinal + 1, Merged::default);
                }
                &mut self.devices[ordinal]
            }
        };
        of.device.entries.lists.push(entries);
        of.device.recorded_from_start = self.from_start;
        of
    }

    /// Returns the entries of each device, at its ordinal, and those of the host. Each keeps only
    /// its newest entries: at most `entries_max` as counted in a file.
    pub fn finish(self, entries_max: u64) -> (Vec<Device<MergedEntries>>, Device<MergedEntries>) {
        let finish = |of: Merged| {
            let mut device = of.finish(self.from_start);
            device.dropped_count += device.entries.keep_newest(entries_max);
            device
        };
        let devices = self.devices.into_iter().map(finish).collect();
        (devices, finish(self.host))
    }
}

impl Merged {
    fn finish(self, from_start: bool) -> Device<MergedEntries> {
        let Merged { mut device, oldest_ns } = self;
        let is_older = |entry: &Entry| entry.time_ns < oldest_ns;
        let lists = device.entries.lists.iter();
        let older = lists.map(|list| list.iter().take_while(is_older).count()).sum();
        device.entries.left_out = older;
        if from_start {
            device.dropped_count += older as u64;
        }
        device
    }
}

impl MergedEntries {
    /// Keeps the newest entries, and returns the number of those that are left out. A free is one
    /// entry in a ring and two in a file, and PyTorch counts those of files. If only one of the two
    /// fits, the later one is kept.
    fn keep_newest(&mut self, entries_max: u64) -> u64 {
        let room = entries_max.max(1);
        let written = |entry: Entry| if entry.action == Action::Free { 2 } else { 1 };
        if self.count() as u64 <= room / 2 {
            return 0;
        }
        let mut written_count: u64 = self.each().map(written).sum();
        let mut count = 0;
        let mut first_is_half = false;
        for entry in self.each() {
            let too_many = written_count.saturating_sub(room);
            first_is_half = too_many == 1 && written(entry) == 2;
            if too_many == 0 || first_is_half {
                break;
            }
            written_count -= written(entry);
            count += 1;
        }
        self.left_out += count;
        self.first_is_half = first_is_half;
        count as u64
    }
}

impl EntryList for MergedEntries {
    fn each(&self) -> impl Iterator<Item = Entry> {
        let mut lists: Vec<_> = self.lists.iter().map(PackedEntries::iter).collect();
        let mut next: Vec<Option<Entry>> = lists.iter_mut().map(Iterator::next).collect();
        let place = |(number, next): (usize, &Option<Entry>)| {
            next.map(|entry| Reverse((entry.time_ns, number)))
        };
        let mut places: BinaryHeap<_> = next.iter().enumerate().filter_map(place).collect();
        let merged = std::iter::from_fn(move || {
            let mut first = places.peek_mut()?;
            let Reverse((_, number)) = *first;
            let entry = std::mem::replace(&mut next[number], lists[number].next());
            match &next[number] {
                Some(next) => *first = Reverse((next.time_ns, number)),
                None => _ = PeekMut::pop(first),
            }
            entry
        });
        let mut first_is_half = self.first_is_half;
        merged.skip(self.left_out).map(move |entry| match std::mem::take(&mut first_is_half) {
            true => Entry { action: Action::FreeCompleted, ..entry },
            false => entry,
        })
    }

    fn count(&self) -> usize {
        self.lists.iter().map(PackedEntries::len).sum::<usize>() - self.left_out
    }
}

//! Merges the entries of a device from the rings of its contexts. Each context has a ring, and a
//! segment moves between contexts. Entries that one ring still has from a time that another ring
//! has lost would be inconsistent, so they are dropped.

use crate::entry::{Action, Entry};
use crate::snapshot::{Device, HOST_DEVICE};

pub struct RingMerge {
    devices: Vec<Merged>,
    host: Merged,
    from_start: bool,
}

#[derive(Default)]
struct Merged {
    device: Device,
    /// Time from which the history is complete.
    oldest_ns: u64,
}

impl RingMerge {
    /// Creates an empty merge. `from_start`: everything that ever happened was recorded.
    pub fn new(from_start: bool) -> RingMerge {
        RingMerge { devices: Vec::new(), host: Merged::default(), from_start }
    }

    /// Adds the entries of one ring, oldest first, and the number it has lost. `device` is an
    /// ordinal, or [`HOST_DEVICE`].
    pub fn add(&mut self, device: u32, entries: Vec<Entry>, dropped_count: u64) {
        let complete = dropped_count == 0 && self.from_start;
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
        if let Some(oldest) = entries.first().filter(|_| !complete) {
            of.oldest_ns = oldest.time_ns.max(of.oldest_ns);
        }
        of.device.entries.extend(entries);
        of.device.dropped_count += dropped_count;
        of.device.recorded_from_start = self.from_start;
    }

    /// Returns the entries of each device, at its ordinal, and those of the host. Each keeps only
    /// its newest entries: at most `entries_max` as counted in a file.
    pub fn finish(self, entries_max: u64) -> (Vec<Device>, Device) {
        let finish = |of: Merged| {
            let mut device = of.finish(self.from_start);
            keep_newest(&mut device, entries_max);
            device
        };
        let devices = self.devices.into_iter().map(finish).collect();
        (devices, finish(self.host))
    }
}

impl Merged {
    fn finish(self, from_start: bool) -> Device {
        let Merged { mut device, oldest_ns } = self;
        device.entries.sort_by_key(|entry| entry.time_ns); // stable: several rings, each in order
        let older = device.entries.partition_point(|entry| entry.time_ns < oldest_ns);
        device.entries.drain(..older);
        if from_start {
            device.dropped_count += older as u64;
        }
        device
    }
}

/// Keeps the newest entries. A free is one entry in a ring and two in a file, and PyTorch counts
/// those of files. If only one of the two fits, the later one is kept.
fn keep_newest(device: &mut Device, entries_max: u64) {
    let mut room = entries_max.max(1);
    let mut first = device.entries.len();
    while let Some(entry) = first.checked_sub(1).and_then(|index| device.entries.get_mut(index)) {
        match (entry.action, room) {
            (_, 0) => break,
            (Action::Free, 1) => {
                entry.action = Action::FreeCompleted;
                room = 0;
            }
            (Action::Free, _) => room -= 2,
            _ => room -= 1,
        }
        first -= 1;
    }
    device.entries.drain(..first);
    device.dropped_count += first as u64;
}

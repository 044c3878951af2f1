//! The entries of a device, out of those of its contexts. Each context has a ring of its own, and a segment
//! moves from one to another: what one ring still knows of a time that another one has lost would not fit
//! together, and is left out.

use crate::entry::Entry;
use crate::snapshot::Device;

pub struct Gather {
    devices: Vec<Device>,
    /// By device: from when on the history is complete.
    oldest_ns: Vec<u64>,
    from_start: bool,
}

impl Gather {
    /// `from_start`: everything was recorded that ever happened.
    pub fn new(from_start: bool) -> Gather {
        Gather { devices: Vec::new(), oldest_ns: Vec::new(), from_start }
    }

    /// The entries of one ring, oldest first, and how many it has lost.
    pub fn add(&mut self, device: usize, entries: Vec<Entry>, dropped_count: u64) {
        if self.devices.len() <= device {
            self.devices.resize_with(device + 1, Device::default);
            self.oldest_ns.resize(device + 1, 0);
        }
        let complete = dropped_count == 0 && self.from_start;
        if let Some(oldest) = entries.first().filter(|_| !complete) {
            let oldest_ns = &mut self.oldest_ns[device];
            *oldest_ns = oldest.time_ns.max(*oldest_ns);
        }
        let device = &mut self.devices[device];
        device.entries.extend(entries);
        device.dropped_count += dropped_count;
        device.recorded_from_start = self.from_start;
    }

    pub fn finish(mut self) -> Vec<Device> {
        for (device, oldest_ns) in self.devices.iter_mut().zip(self.oldest_ns) {
            device.entries.sort_by_key(|entry| entry.time_ns); // stable: several rings, each in order
            let older = device.entries.partition_point(|entry| entry.time_ns < oldest_ns);
            device.entries.drain(..older);
            if self.from_start {
                device.dropped_count += older as u64;
            }
        }
        self.devices
    }
}

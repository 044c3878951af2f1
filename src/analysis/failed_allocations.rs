//! Requests that failed for lack of memory.

use crate::lifetimes::{Lifetimes, Moment};
use crate::model::{Action, Device, StackId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// The moment before its entry: [`sites`](crate::sites()) at this moment returns the holders.
    pub moment: Moment,
    pub time_us: u64,
    pub asked_bytes: u64,
    /// Bytes that the driver reported as free on the device.
    pub device_free_bytes: u64,
    /// Bytes that the program held.
    pub live_bytes: u64,
    pub reserved_bytes: u64,
    /// The requesting stack.
    pub stack: StackId,
}

pub fn shortages(device: &Device, lifetimes: &Lifetimes) -> Vec<Shortage> {
    let is_shortage = |action| action == Action::OutOfMemory;
    if !device.entries.iter().any(|entry| is_shortage(entry.action)) {
        return Vec::new();
    }
    let live = lifetimes.bytes_over_time();
    let reserved = crate::reserved_over_time(device);
    let entries = device.entries.iter().enumerate();
    let refused = entries.filter(|(_, entry)| is_shortage(entry.action));
    let shortage = |(index, entry): (usize, crate::model::Entry)| Shortage {
        moment: index as Moment,
        time_us: entry.time_us,
        asked_bytes: entry.bytes,
        device_free_bytes: entry.address,
        live_bytes: live[index],
        reserved_bytes: reserved[index],
        stack: entry.stack,
    };
    refused.map(shortage).collect()
}

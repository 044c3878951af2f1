//! Allocations that were hardly used: freed after at most one other allocation on the device.
//!
//! The temporary allocations of heaptrack and memray have nothing in between; an operation that
//! allocates its output beside its workspace has one allocation more. If one site has many, the
//! memory should be allocated once, outside of the loop.

use crate::lifetimes::Lifetimes;
use crate::model::{Action, Device};

/// Most other allocations between the two entries of a temporary allocation.
pub const OTHERS_BETWEEN_MAX: u32 = 1;

/// Returns for each lifetime whether it was a temporary allocation.
pub fn temporary(device: &Device, lifetimes: &Lifetimes) -> Vec<bool> {
    flags(device, lifetimes).collect()
}

pub(crate) fn flags(device: &Device, lifetimes: &Lifetimes) -> impl Iterator<Item = bool> {
    // Number of allocations before each moment.
    let mut allocations = Vec::with_capacity(device.entries.len() + 1);
    let mut count = 0u32;
    allocations.push(count);
    for entry in &device.entries {
        count += u32::from(entry.action == Action::Alloc);
        allocations.push(count);
    }
    lifetimes.all.iter().map(move |life| {
        let between = |begin, end| allocations[end as usize] - allocations[begin as usize];
        life.begin_known && life.end_known && between(life.begin, life.end) <= OTHERS_BETWEEN_MAX
    })
}

//! Reserved memory, and how much of it is used.

use crate::model::{Action, BlockState, Device, Segment};

/// Usage of one segment or several, in bytes of blocks, which are rounded up from the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub reserved_bytes: u64,
    pub allocated_bytes: u64,
    /// The requested part of the allocated bytes.
    pub requested_bytes: u64,
    /// Freed bytes that a stream may still use.
    pub pending_bytes: u64,
    pub free_bytes: u64,
    pub free_count: u64,
    pub free_bytes_max: u64,
    /// Free bytes beside blocks that are not free: they cannot be released to the driver.
    pub stuck_bytes: u64,
}

impl Usage {
    pub fn of(segment: &Segment) -> Usage {
        let mut usage = Usage { reserved_bytes: segment.bytes, ..Usage::default() };
        for block in &segment.blocks {
            let bytes = match block.state {
                BlockState::Allocated => {
                    usage.requested_bytes =
                        usage.requested_bytes.saturating_add(block.requested_bytes);
                    &mut usage.allocated_bytes
                }
                BlockState::Pending => &mut usage.pending_bytes,
                BlockState::Free => {
                    usage.free_count += 1;
                    usage.free_bytes_max = usage.free_bytes_max.max(block.bytes);
                    &mut usage.free_bytes
                }
            };
            *bytes = bytes.saturating_add(block.bytes);
        }
        if usage.allocated_bytes > 0 || usage.pending_bytes > 0 {
            usage.stuck_bytes = usage.free_bytes;
        }
        usage
    }

    pub fn of_all<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> Usage {
        let mut sum = Usage::default();
        for usage in segments.into_iter().map(Usage::of) {
            let pairs = [
                (&mut sum.reserved_bytes, usage.reserved_bytes),
                (&mut sum.allocated_bytes, usage.allocated_bytes),
                (&mut sum.requested_bytes, usage.requested_bytes),
                (&mut sum.pending_bytes, usage.pending_bytes),
                (&mut sum.free_bytes, usage.free_bytes),
                (&mut sum.free_count, usage.free_count),
                (&mut sum.stuck_bytes, usage.stuck_bytes),
            ];
            for (sum, amount) in pairs {
                *sum = sum.saturating_add(amount);
            }
            sum.free_bytes_max = sum.free_bytes_max.max(usage.free_bytes_max);
        }
        sum
    }

    /// Returns the share of the free bytes outside the largest free block: 0 if all free memory is
    /// contiguous.
    pub fn fragmentation(&self) -> f64 {
        if self.free_bytes == 0 {
            return 0.0;
        }
        1.0 - self.free_bytes_max as f64 / self.free_bytes as f64
    }
}

/// Returns the reserved bytes at each moment, computed backwards from the segments at the end. Gaps
/// in a history never make it negative.
pub fn reserved_over_time(device: &Device) -> Vec<u64> {
    let at_end: i128 = device.segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    let mut now = at_end;
    let mut bytes = vec![0; device.entries.len() + 1];
    for (moment, reserved) in bytes.iter_mut().enumerate().rev() {
        // From the moment after this entry to the one before it.
        match device.entries.get(moment).map(|entry| (entry.action, i128::from(entry.bytes))) {
            Some((Action::SegmentAlloc | Action::SegmentMap, bytes)) => now -= bytes,
            Some((Action::SegmentFree | Action::SegmentUnmap, bytes)) => now += bytes,
            _ => {}
        }
        *reserved = u64::try_from(now.max(0)).unwrap_or(u64::MAX);
    }
    bytes
}

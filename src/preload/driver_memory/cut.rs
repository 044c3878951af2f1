//! The part of a snapshot that comes from the memory that the driver serves. See Note [Cut] in
//! snapshots/cut.rs.

use std::collections::BTreeMap;

use cachealloc_history::{Entry, RingCopy, RingEntries, Segment};

use crate::driver_memory::table::TABLE;
use crate::lock::lock;
use crate::process::lock_timeout::LockWait;
use crate::record::driver_memory;
use crate::record::driver_memory::Allocation;
use crate::record::recorder;

/// What is live at one moment, and the entries, some of which are still to be copied.
pub(crate) struct DriverCut {
    pub segments: Vec<Segment>,
    rings: Vec<(i32, RingCopy)>,
    /// Physical memory without an address, and when it was created.
    unmapped: Vec<(u64, Allocation)>,
}

/// What is live at one moment, and the entries.
pub(crate) struct Copied {
    pub segments: Vec<Segment>,
    pub rings: Vec<(i32, RingEntries)>,
    /// Entries that no ring contains, by device.
    pub others: BTreeMap<i32, Vec<Entry>>,
}

/// Returns an upper bound of the bytes that a cut takes.
pub(crate) fn bytes() -> usize {
    let table = lock(&TABLE);
    let unmapped_bytes = table.physical.len() * size_of::<(u64, Allocation)>();
    let segments_count = table.served.len() + table.physical.len();
    segments_count * driver_memory::SEGMENT_BYTES_MAX + unmapped_bytes + table.history.cut_bytes()
}

/// Makes the cut.
pub(crate) fn cut() -> DriverCut {
    let table = lock(&TABLE);
    let mut segments = Vec::with_capacity(table.served.len() + table.physical.len());
    let mut unmapped = Vec::with_capacity(table.physical.len());
    let shown = table.served.iter().filter_map(|(key, served)| served.shown(*key));
    segments.extend(shown.map(|allocation| allocation.segment()));
    unmapped.extend(table.unmapped());
    segments.extend(unmapped.iter().map(|(_, unmapped)| unmapped.segment()));
    DriverCut { segments, rings: table.history.cut(), unmapped }
}

impl DriverCut {
    /// Copies the entries before the cut.
    pub(crate) fn copied(self, heartbeat: impl Fn()) -> Copied {
        let copied = |(device, mut copy): (i32, RingCopy)| {
            while copy.pack() {
                heartbeat();
                match LockWait::Timeout.lock(&TABLE) {
                    Some(table) => table.history.copy(device, &mut copy),
                    None => copy.copy(None),
                }
            }
            let mut ring = copy.finish();
            if !recorder::misses_entries() {
                ring.dropped_count = 0;
            }
            (device, ring)
        };
        let rings: Vec<_> = self.rings.into_iter().map(copied).collect();
        let mut others: BTreeMap<i32, Vec<Entry>> = BTreeMap::new();
        for (time_ns, unmapped) in &self.unmapped {
            let ring = rings.iter().find(|(device, _)| *device == unmapped.device);
            let entries = driver_memory::entries_of(unmapped, *time_ns, ring.map(|(_, ring)| ring));
            if let Some(entries) = entries {
                others.entry(unmapped.device).or_default().extend(entries);
            }
        }
        others.values_mut().for_each(|entries| entries.sort_by_key(|entry| entry.time_ns));
        Copied { segments: self.segments, rings, others }
    }
}

//! The private pools that entries belong to. An entry does not contain its pool. It is known if the
//! entry's address lies in a segment that still exists and belongs to a pool, since the time at
//! which the segment joined the pool.

use crate::entry::{Action, Entry};
use crate::snapshot::Segment;

/// Segments of private pools, by device and address.
pub(super) struct Pools(Vec<Owned>);

struct Owned {
    device: u32,
    address: u64,
    end: u64,
    since_ns: u64,
    pool_id: (u64, u64),
}

const DEFAULT_POOL: (u64, u64) = (0, 0);

impl Pools {
    pub(super) fn of_segments(segments: &[Segment]) -> Pools {
        let of_pools = segments.iter().filter(|segment| segment.pool_id != DEFAULT_POOL);
        let owned = of_pools.filter_map(|segment| {
            let Segment { device, address, pool_id, pool_since_ns, .. } = *segment;
            Some(Owned { device, address, end: segment.end(), since_ns: pool_since_ns?, pool_id })
        });
        let mut all: Vec<Owned> = owned.collect();
        all.sort_by_key(|owned| (owned.device, owned.address));
        Pools(all)
    }

    /// Returns the pool of an entry of this device, or the default pool if the entry is in no
    /// private pool or its pool is unknown.
    pub(super) fn of(&self, device: u32, entry: &Entry) -> (u64, u64) {
        // The `address` of these entries is not an address.
        if self.0.is_empty() || matches!(entry.action, Action::OutOfMemory | Action::Snapshot) {
            return DEFAULT_POOL;
        }
        let place = (device, entry.address);
        let behind = self.0.partition_point(|owned| (owned.device, owned.address) <= place);
        let around = behind.checked_sub(1).map(|at| &self.0[at]);
        let owned = around.filter(|owned| {
            owned.device == device && entry.address < owned.end && entry.time_ns >= owned.since_ns
        });
        owned.map_or(DEFAULT_POOL, |owned| owned.pool_id)
    }
}

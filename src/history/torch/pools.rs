//! The private pools that entries belong to. An entry does not say it; it is known where its address lies in a segment
//! that is there and is a pool's, from when on that is so.

use crate::entry::{Action, Entry};
use crate::snapshot::Segment;

/// What private pools have, by device and address.
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

    /// The pool of an entry of this device; the default one where it is in none, or that is not known.
    pub(super) fn of(&self, device: u32, entry: &Entry) -> (u64, u64) {
        // Their addresses are none.
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

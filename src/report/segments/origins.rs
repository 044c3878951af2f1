//! The range and the pool in which blocks were allocated, by which the page can stack them.

use std::collections::HashMap;

use cachealloc_analysis::Lifetime;
use cachealloc_analysis::model::{Device, PoolId, Snapshot, TextId};

use super::pool_text;
use crate::columns::once_if_equal;
use crate::tables::Tables;
use crate::track::{Row, Track};

/// A device, with its segments in order: they tell the pool of a block whose allocation is not in
/// the history, or has no pool there.
pub(crate) struct Origins<'a> {
    snapshot: &'a Snapshot,
    device: &'a Device,
    /// Begin, end and pool.
    segments: Vec<(u64, u64, PoolId)>,
    /// Whether the entries have pools. Those of PyTorch before 2.8 have none.
    has_pools: bool,
}

impl<'a> Origins<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot, device: &'a Device) -> Origins<'a> {
        let segments = device.segments.iter();
        let mut segments: Vec<_> =
            segments.map(|segment| (segment.address, segment.end(), segment.pool)).collect();
        segments.sort_unstable_by_key(|&(begin, ..)| begin);
        let has_pools = device.entries.iter().any(|entry| entry.pool != PoolId::DEFAULT);
        Origins { snapshot, device, segments, has_pools }
    }

    /// Returns the text number of the range of each row, that of an empty text for none. Returns a
    /// single number if all are equal.
    pub(crate) fn ranges(&self, track: &Track, tables: &mut Tables) -> Vec<u32> {
        let mut known = HashMap::new();
        let mut number = |row: &Row| {
            let entry = track.life(row).allocated_by().map(|entry| self.device.entries.at(entry));
            let range = entry.map_or(TextId::EMPTY, |entry| entry.user_metadata);
            let new = || tables.text(self.snapshot.texts.get(range));
            *known.entry(range).or_insert_with(new)
        };
        once_if_equal(track.rows.iter().map(&mut number))
    }

    /// Returns the text number of the pool of each row, as `ranges` does.
    pub(crate) fn pools(&self, track: &Track, tables: &mut Tables) -> Vec<u32> {
        let mut known = HashMap::new();
        let mut number = |row: &Row| {
            let pool = self.pool(track.life(row));
            *known.entry(pool).or_insert_with(|| pool_text(self.snapshot, pool, tables))
        };
        once_if_equal(track.rows.iter().map(&mut number))
    }

    fn pool(&self, life: &Lifetime) -> PoolId {
        if let Some(entry) = life.allocated_by().filter(|_| self.has_pools) {
            return self.device.entries.at(entry).pool;
        }
        let after = self.segments.partition_point(|&(begin, ..)| begin <= life.address);
        let around = after.checked_sub(1).map(|at| self.segments[at]);
        let around = around.filter(|&(_, end, _)| life.address < end);
        around.map_or(PoolId::DEFAULT, |(.., pool)| pool)
    }
}

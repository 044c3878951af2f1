//! The segments of all files, and their blocks one after the other: they tile the segment, so only
//! their sizes are needed.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use cachealloc_analysis::model::{BlockState, PoolId, Snapshot};

use crate::columns::Columns;
use crate::tables::{Tables, Translation};

#[derive(Default)]
pub(crate) struct Segments {
    segments: Vec<[u64; 9]>,
    blocks: Vec<[u64; 4]>,
}

const SEGMENT_FIELDS: [&str; 9] =
    ["track", "address", "bytes", "stream", "small", "pool", "private", "expandable", "blocks"];
const BLOCK_FIELDS: [&str; 4] = ["bytes", "requested", "state", "stack"];

/// The state of a block.
const FREE: u64 = 0;

impl Segments {
    pub(crate) fn add(
        &mut self,
        snapshot: &Snapshot,
        device: usize,
        track: usize,
        translation: &mut Translation,
        tables: &mut Tables,
    ) {
        for segment in &snapshot.devices[device].segments {
            self.segments.push([
                track as u64,
                segment.address,
                segment.bytes,
                segment.stream,
                segment.small.into(),
                pool_text(snapshot, segment.pool, tables).into(),
                (segment.pool != PoolId::DEFAULT).into(),
                segment.expandable.into(),
                segment.blocks.len() as u64,
            ]);
            for block in &segment.blocks {
                let (state, stack) = match block.state {
                    BlockState::Free => (FREE, Default::default()),
                    BlockState::Allocated => (1, block.stack),
                    BlockState::Pending => (2, block.stack),
                };
                let stack = tables.stack(translation, stack, block.category);
                self.blocks.push([block.bytes, block.requested_bytes, state, stack.into()]);
            }
        }
    }

    pub(crate) fn write(&self, columns: &mut Columns) {
        for (index, field) in SEGMENT_FIELDS.iter().enumerate() {
            let numbers = self.segments.iter().map(|segment| segment[index]);
            columns.unsigned(&format!("segment.{field}"), numbers);
        }
        for (index, field) in BLOCK_FIELDS.iter().enumerate() {
            let numbers = self.blocks.iter().map(|block| block[index]);
            columns.unsigned(&format!("block.{field}"), numbers);
        }
    }
}

/// Of a call site, at the free pieces of segments that are partly used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    /// Free right before or behind one of its blocks; a piece counts for each call site beside it.
    pub free_bytes: u64,
    pub free_count: u64,
    /// The blocks that lie there.
    pub blocks_count: u64,
    pub blocks_bytes: u64,
}

impl Segments {
    /// By the number of the site of a stack, on one track: the most free bytes first.
    pub(crate) fn beside(&self, track: usize, site_of: impl Fn(u32) -> u32) -> Vec<(u32, Beside)> {
        let mut sites: HashMap<u32, Beside> = HashMap::new();
        let mut rest = self.blocks.as_slice();
        for segment in &self.segments {
            let (blocks, others) = rest.split_at(segment[8] as usize);
            rest = others;
            if segment[0] != track as u64 || blocks.iter().all(|block| block[2] == FREE) {
                continue;
            }
            for (index, block) in blocks.iter().enumerate() {
                let near = [index.checked_sub(1), Some(index + 1)];
                let near = near.into_iter().flatten().filter_map(|index| blocks.get(index));
                let site = |block: &[u64; 4]| site_of(block[3] as u32);
                if block[2] != FREE {
                    if near.into_iter().any(|block| block[2] == FREE) {
                        let beside = sites.entry(site(block)).or_default();
                        beside.blocks_count += 1;
                        beside.blocks_bytes = beside.blocks_bytes.saturating_add(block[0]);
                    }
                    continue;
                }
                let whose: BTreeSet<u32> =
                    near.filter(|block| block[2] != FREE).map(site).collect();
                for number in whose {
                    let beside = sites.entry(number).or_default();
                    beside.free_count += 1;
                    beside.free_bytes = beside.free_bytes.saturating_add(block[0]);
                }
            }
        }
        let mut sites: Vec<_> = sites.into_iter().collect();
        sites.sort_unstable_by_key(|&(site, beside)| (Reverse(beside.free_bytes), site));
        sites
    }
}

/// As PyTorch's viewer writes a pool.
pub(crate) fn pool_text(snapshot: &Snapshot, pool: PoolId, tables: &mut Tables) -> u32 {
    let pool = snapshot.pools.get(pool.0 as usize).copied().unwrap_or_default();
    tables.text(&format!("{}.{}", pool.0, pool.1))
}

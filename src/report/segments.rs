//! Segments of all files, and their blocks in order. Blocks tile the segment, so only their sizes
//! are written.

mod origins;

use cachealloc_analysis::model::{BlockState, PoolId, Snapshot};

use crate::columns::Columns;
use crate::tables::{Tables, Translation};

pub(crate) use origins::Origins;

#[derive(Default)]
pub(crate) struct Segments {
    segments: Vec<[u64; 10]>,
    blocks: Vec<[u64; 4]>,
}

const SEGMENT_FIELDS: [&str; 10] = [
    "track",
    "address",
    "bytes",
    "stream",
    "small",
    "pool",
    "private",
    "expandable",
    "stack",
    "blocks",
];
const BLOCK_FIELDS: [&str; 4] = ["bytes", "requested", "state", "stack"];

/// States of a block.
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
                tables.stack(translation, segment.stack, Default::default()).into(),
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

/// Returns the name of a pool in the form of PyTorch's viewer.
pub(crate) fn pool_text(snapshot: &Snapshot, pool: PoolId, tables: &mut Tables) -> u32 {
    let pool = snapshot.pools.get(pool.0 as usize).copied().unwrap_or_default();
    tables.text(&format!("{}.{}", pool.0, pool.1))
}

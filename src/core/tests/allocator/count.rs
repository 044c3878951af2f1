//! The statistics, counted naively: after every step a walk over the blocks finds each change,
//! which is a rise or a fall. PyTorch's numbers mean the same: an operation counts by its effect on
//! the whole, not by its steps.

use cachealloc_core::{Allocator, BlockState, Pool, PoolStats, Stat, Stats};

/// The numbers in the order of their keys.
#[derive(Clone, Copy)]
enum Number {
    Active,
    ActiveBytes,
    AllocatedBytes,
    Allocation,
    InactiveSplit,
    InactiveSplitBytes,
    OversizeAllocations,
    OversizeSegments,
    RequestedBytes,
    ReservedBytes,
    RetiredBytes,
    Segment,
}

/// Prefixes of the keys under which others read each number.
pub const KEYS: [&str; 12] = [
    "active",
    "active_bytes",
    "allocated_bytes",
    "allocation",
    "inactive_split",
    "inactive_split_bytes",
    "oversize_allocations",
    "oversize_segments",
    "requested_bytes",
    "reserved_bytes",
    "retired_bytes",
    "segment",
];

/// Each number for both pools together, and for each pool.
type Numbers<T> = [[T; 3]; KEYS.len()];

/// Statistics counted so far.
#[derive(Clone, Default)]
pub struct Counted(pub Numbers<Stat>);

impl Counted {
    /// Counts one operation.
    pub fn look(&mut self, allocator: &Allocator) {
        let counted = self.0.iter_mut().flatten();
        for (stat, now) in counted.zip(walk(allocator).into_iter().flatten()) {
            stat.allocated += now.saturating_sub(stat.current);
            stat.freed += stat.current.saturating_sub(now);
            stat.current = now;
            stat.peak = stat.peak.max(now);
        }
    }

    /// Counts several operations made in one call: their joint effect is known, but not the rises
    /// and falls between them.
    #[track_caller]
    pub fn look_at_several(&mut self, allocator: &Allocator) {
        self.look(allocator);
        let found = numbers(&allocator.stats());
        for (place, key) in KEYS.into_iter().enumerate() {
            for (stat, found) in self.0[place].iter_mut().zip(found[place]) {
                let rose = found.allocated.checked_sub(stat.allocated);
                let fell = found.freed.checked_sub(stat.freed);
                assert!(rose.is_some() && rose == fell, "{key}: {found:?}, at least {stat:?}");
                let peaks = stat.peak..=stat.peak + rose.unwrap_or(0);
                assert!(peaks.contains(&found.peak), "{key}: {found:?}, at least {stat:?}");
                *stat = found;
            }
        }
    }

    #[track_caller]
    pub fn judge(&self, stats: &Stats) {
        let found = numbers(stats);
        for (place, key) in KEYS.into_iter().enumerate() {
            assert_eq!(found[place], self.0[place], "{key}");
        }
    }
}

fn numbers(stats: &Stats) -> Numbers<Stat> {
    let pooled = |pooled: &PoolStats| [pooled.all, pooled.small, pooled.large];
    let single = |all: Stat| [all, Stat::default(), Stat::default()];
    [
        pooled(&stats.active),
        pooled(&stats.active_bytes),
        pooled(&stats.allocated_bytes),
        pooled(&stats.allocation),
        pooled(&stats.inactive_split),
        pooled(&stats.inactive_split_bytes),
        single(stats.oversize_allocations),
        single(stats.oversize_segments),
        pooled(&stats.requested_bytes),
        pooled(&stats.reserved_bytes),
        pooled(&stats.retired_bytes),
        pooled(&stats.segment),
    ]
}

/// Returns all current numbers, from a walk over the blocks.
fn walk(allocator: &Allocator) -> Numbers<u64> {
    let policy = allocator.policy();
    let keeps_oversize = !policy.expandable_segments && policy.chunk_bytes.is_none();
    let oversize_bytes = policy.max_split_bytes.filter(|_| keeps_oversize).unwrap_or(u64::MAX);
    let mut numbers = Numbers::default();
    let mut add = |number: Number, pool: Pool, amount: u64| {
        let [both, small, large] = &mut numbers[number as usize];
        *both += amount;
        *if pool == Pool::Small { small } else { large } += amount;
    };
    for segment in allocator.segments() {
        let pool = segment.pool;
        // Memory in arenas is mapped and unmapped in pages.
        add(Number::Segment, pool, u64::from(!segment.expandable));
        add(Number::ReservedBytes, pool, segment.bytes);
        add(Number::OversizeSegments, pool, u64::from(segment.bytes >= oversize_bytes));
        for block in allocator.blocks(segment.id) {
            let is_allocated = block.state == BlockState::Allocated;
            let pends = matches!(block.state, BlockState::Free(ready) if ready.is_pending());
            if is_allocated {
                add(Number::Allocation, pool, 1);
                add(Number::AllocatedBytes, pool, block.bytes);
                add(Number::OversizeAllocations, pool, u64::from(block.bytes >= oversize_bytes));
            } else if block.exported {
                add(Number::RetiredBytes, pool, block.bytes);
            }
            if is_allocated || pends {
                add(Number::Active, pool, 1);
                add(Number::ActiveBytes, pool, block.bytes);
                add(Number::RequestedBytes, pool, block.requested_bytes);
            } else if block.bytes < segment.bytes && !segment.expandable {
                add(Number::InactiveSplit, pool, 1);
                add(Number::InactiveSplitBytes, pool, block.bytes);
            }
        }
    }
    for number in [Number::OversizeAllocations, Number::OversizeSegments] {
        numbers[number as usize][1..].fill(0);
    }
    numbers
}

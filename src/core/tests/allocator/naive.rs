//! Best fit by a search through every block for the one that a request must get, if any.

use std::ops::Range;

use cachealloc_core::policy::{BLOCK_BYTES_MIN, MIB};
use cachealloc_core::{
    Address, Allocator, BlockState, BlockView, Pool, PrivatePool, Requester, ReuseCondition,
    SegmentView, StreamId,
};

/// Returns the address of the block that the first poll has to hand out.
pub fn best_fit(
    allocator: &Allocator,
    bytes: u64,
    requester: Requester,
    private: Option<PrivatePool>,
) -> Option<Address> {
    if private.is_some_and(|private| !allocator.serves_pool(private)) {
        return None;
    }
    let policy = allocator.policy();
    let wanted = policy.block_bytes(bytes)?;
    let one_pool = policy.chunk_bytes.is_some();
    let small = wanted <= MIB;
    let pool = if small && !one_pool { Pool::Small } else { Pool::Large };
    let slack = policy.max_non_split_rounding_bytes;
    let mut best = None;
    let same = |segment: &SegmentView| segment.pool == pool;
    for segment in allocator.segments().filter(same) {
        let blocks = allocator.blocks(segment.id).filter(|block| block.private == private);
        for block in blocks.filter(|block| block.bytes >= wanted) {
            let others = match (block.state, requester) {
                (BlockState::Free(ReuseCondition::Everywhere), _) => true,
                (
                    BlockState::Free(
                        ReuseCondition::OnStream { stream: freed_on, .. }
                        | ReuseCondition::InPool { stream: freed_on },
                    ),
                    Requester::Stream(stream),
                ) if stream == freed_on => false,
                _ => continue,
            };
            let whole = block.bytes == segment.bytes && !segment.expandable;
            let may_avoid_split =
                block.bytes > wanted && allocator.may_avoid_split(block.bytes - wanted);
            let spared = allocator.pressure() && may_avoid_split && private.is_none();
            let much_larger = block.bytes >= wanted + slack;
            let own_bytes = wanted.div_ceil(2 * MIB) * 2 * MIB;
            let keeps_whole = allocator.keeps_large_whole() && !small;
            if block.exported || (keeps_whole && !(whole && block.bytes <= own_bytes)) {
                continue;
            }
            if spared && !one_pool && !small && whole && much_larger {
                continue;
            }
            let uncut = !one_pool && !small && private.is_none() && whole && may_avoid_split;
            if uncut && block.bytes > own_bytes && is_hole_too_much(allocator, block.bytes - wanted)
            {
                continue;
            }
            if let Some(max) =
                policy.max_split_bytes.filter(|_| !one_pool && !policy.expandable_segments)
            {
                let kept = block.bytes >= max && block.bytes > policy.large_segment_bytes;
                if (wanted < max && kept) || (wanted >= max && much_larger) {
                    continue;
                }
            }
            // Events are numbered in the order of the frees. Note [Newest first].
            let turn = match block.state {
                BlockState::Free(ReuseCondition::OnStream { event, .. }) => u64::MAX - event.0,
                _ => segment.registration,
            };
            let rank = (block.bytes, others, turn, block.address);
            best = Some(best.map_or(rank, |best| rank.min(best)));
        }
    }
    best.map(|(_, _, _, address)| address)
}

/// Returns the other places that may serve a request of a stream: blocks that the stream has freed
/// and the free blocks beside them, joined from the last one on. Note [Own neighbours].
pub fn own_windows(allocator: &Allocator, bytes: u64, stream: StreamId) -> Vec<Address> {
    let policy = allocator.policy();
    let Some(wanted) = policy.block_bytes(bytes) else { return Vec::new() };
    let small = wanted <= MIB && policy.chunk_bytes.is_none();
    let pool = if small { Pool::Small } else { Pool::Large };
    let mut found = Vec::new();
    for segment in allocator.segments().filter(|segment| segment.pool == pool) {
        let blocks: Vec<BlockView> = allocator.blocks(segment.id).collect();
        let free = |block: &&BlockView| {
            let own = match block.state {
                BlockState::Free(ReuseCondition::Everywhere) => true,
                BlockState::Free(ReuseCondition::OnStream { stream: by, .. }) => by == stream,
                _ => false,
            };
            own && block.private.is_none() && !block.exported
        };
        // All of it together is a segment that is better kept whole.
        let whole = !segment.expandable && blocks.iter().all(|block| free(&block));
        if whole
            && !small
            && policy.chunk_bytes.is_none()
            && avoids_split(allocator, segment.bytes, wanted)
        {
            continue;
        }
        for first in 0..blocks.len() {
            let mut bytes = 0;
            for (count, block) in blocks[first..].iter().take_while(free).enumerate() {
                bytes += block.bytes;
                if bytes >= wanted {
                    let end = block.address.0 + block.bytes;
                    let starts = [end - wanted, blocks[first].address.0].map(Address);
                    found.extend(starts.into_iter().filter(|_| count > 0));
                    break;
                }
            }
        }
    }
    found
}

/// Returns the place of a part for a capture, if any: in the best block that has one, the lowest
/// place that was idle since the capture began or that its nodes do not reference. `named_end`
/// returns the end of their references in a range.
pub fn part(
    allocator: &Allocator,
    bytes: u64,
    is_idle: impl Fn(Range<u64>) -> bool,
    named_end: impl Fn(Range<u64>) -> Option<u64>,
) -> Option<Address> {
    let policy = allocator.policy();
    let wanted = policy.block_bytes(bytes)?;
    let pool = policy.pool_of(wanted);
    let plain = |segment: &SegmentView| segment.pool == pool && !segment.expandable;
    let mut ranked = Vec::new();
    for segment in allocator.segments().filter(plain) {
        for block in allocator.blocks(segment.id) {
            let free = block.state == BlockState::Free(ReuseCondition::Everywhere);
            let ordinary = free && block.private.is_none() && !block.exported;
            if ordinary && policy.fits(block.bytes, wanted) {
                ranked.push((block.bytes, segment.registration, block.address.0));
            }
        }
    }
    ranked.sort();
    let first_place = |(bytes, _, address): (u64, u64, u64)| {
        let end = address + bytes;
        let idle = is_idle(address..end);
        (address..=end - wanted).step_by(BLOCK_BYTES_MIN as usize).find(|begin| {
            let cut = policy.splits(pool, end - begin, wanted);
            let taken = *begin..if cut { begin + wanted } else { end };
            idle || named_end(taken).is_none()
        })
    };
    ranked.into_iter().find_map(first_place).map(Address)
}

/// Implements Notes [Pressure] and [Capacity].
fn avoids_split(allocator: &Allocator, segment_bytes: u64, wanted: u64) -> bool {
    let slack = allocator.policy().max_non_split_rounding_bytes;
    let (own_bytes, more_bytes) =
        (wanted.div_ceil(2 * MIB) * 2 * MIB, segment_bytes.saturating_sub(wanted));
    let pressed = allocator.pressure() && segment_bytes >= wanted + slack;
    let is_hole = segment_bytes > own_bytes && is_hole_too_much(allocator, more_bytes);
    (pressed || is_hole) && allocator.may_avoid_split(more_bytes)
}

/// Implements Note [Capacity]: once a third of the capacity is reserved, the holes may take 1/512
/// of it.
fn is_hole_too_much(allocator: &Allocator, more_bytes: u64) -> bool {
    let Some(capacity_bytes) = allocator.capacity_bytes() else { return false };
    let stats = allocator.stats();
    let holes_bytes = stats.inactive_split_bytes.all.current + more_bytes;
    stats.reserved_bytes.all.current >= capacity_bytes / 3 && holes_bytes > capacity_bytes / 512
}

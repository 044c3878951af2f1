//! Naive search for the addresses at which memory must be mapped in arenas. Note [Arenas].

use std::ops::Range;

use cachealloc_core::policy::MIB;
use cachealloc_core::{Allocator, BlockState, Mapping, Pool, ReuseCondition};

use crate::driver::{ARENA_BYTES, ARENAS_BASE};

const PAGE_BYTES: u64 = 2 * MIB;

/// The pools of the arenas, by address.
pub const ARENAS: [Pool; 3] = [Pool::Small, Pool::Large, Pool::Large];

/// Checks the mappings that a request for `bytes` has asked for, before they are in the list of
/// arriving ones.
#[track_caller]
pub fn judge(allocator: &Allocator, bytes: u64, arriving: &[Mapping], asked: &[Mapping]) {
    let wanted = [allocator.policy().block_bytes(bytes), Some(bytes.div_ceil(512) * 512)];
    let wanted = wanted.map(|bytes| bytes.expect("refused before"));
    let candidates = wanted.into_iter().flat_map(|bytes| {
        // Free blocks that were counted may have been taken by others since.
        [false, true].map(|alone| least_missing(allocator, wanted[0], bytes, alone, arriving))
    });
    let ranges: Vec<Range<u64>> = asked
        .chunk_by(|left, right| left.end() == right.base)
        .map(|range| range[0].base.0..range[range.len() - 1].end().0)
        .collect();
    let candidates: Vec<_> = candidates.flatten().collect();
    assert!(candidates.contains(&ranges), "{ranges:x?}, not one of {candidates:x?}");
    judge_steps(allocator, asked);
}

/// Checks the steps: few mappings for a large range, smaller ones while memory is short, and all
/// but the last of one size.
#[track_caller]
fn judge_steps(allocator: &Allocator, asked: &[Mapping]) {
    let count = if allocator.pressure() { 1024 } else { 32 };
    for range in asked.chunk_by(|left, right| left.end() == right.base) {
        let bytes: u64 = range.iter().map(|mapping| mapping.bytes).sum();
        let mut step_bytes = PAGE_BYTES;
        while step_bytes < 64 * MIB && 2 * step_bytes * count <= bytes {
            step_bytes *= 2;
        }
        let (last, others) = range.split_last().expect("a range of mappings");
        assert!(
            others.iter().all(|mapping| mapping.bytes == step_bytes),
            "{step_bytes}: {range:?}"
        );
        assert!(last.bytes <= step_bytes, "{step_bytes}: {range:?}");
    }
}

/// Finds the window that lacks the least, among all windows of `bytes` at an end of free addresses,
/// with or without memory. Where addresses go on without end to the right, windows are taken from
/// the left.
fn least_missing(
    allocator: &Allocator,
    block_bytes: u64,
    bytes: u64,
    alone: bool,
    arriving: &[Mapping],
) -> Option<Vec<Range<u64>>> {
    let pool = allocator.policy().pool_of(block_bytes);
    let mut windows = Vec::new();
    for (number, _) in (0..).zip(ARENAS).filter(|(_, of)| *of == pool) {
        let base = ARENAS_BASE + number * ARENA_BYTES;
        for run in runs(allocator, base..base + ARENA_BYTES, alone, arriving) {
            let (begin, end) = (run[0].0.start, run[run.len() - 1].0.end);
            if end - begin < bytes {
                continue;
            }
            let is_open = end == base + ARENA_BYTES && run[run.len() - 1].1;
            windows.push((begin, missing(&run, begin..begin + bytes)));
            if !is_open {
                windows.push((end - bytes, missing(&run, end - bytes..end)));
            }
        }
    }
    windows.retain(|(_, missing)| !missing.is_empty());
    let lacks = |missing: &[Range<u64>]| missing.iter().map(|it| it.end - it.start).sum::<u64>();
    let best = windows.into_iter().min_by_key(|(begin, missing)| (lacks(missing), *begin));
    best.map(|(_, missing)| missing)
}

/// Returns runs of adjacent free addresses, each range with whether it lacks backing memory.
fn runs(
    allocator: &Allocator,
    arena: Range<u64>,
    alone: bool,
    arriving: &[Mapping],
) -> Vec<Vec<(Range<u64>, bool)>> {
    let segments = allocator.segments().filter(|segment| arena.contains(&segment.base.0));
    let blocks = segments.flat_map(|segment| allocator.blocks(segment.id));
    let blocks = blocks.map(|block| {
        let is_free =
            block.state == BlockState::Free(ReuseCondition::Everywhere) && !block.exported;
        let serves = is_free && block.private.is_none() && !alone;
        (block.address.0..block.address.0 + block.bytes, serves)
    });
    let arriving = arriving.iter().filter(|mapping| arena.contains(&mapping.base.0));
    let arriving = arriving.map(|mapping| (mapping.base.0..mapping.end().0, false));
    let mut pieces: Vec<_> = blocks.chain(arriving).collect();
    pieces.push((arena.end..arena.end, false));
    pieces.sort_by_key(|(range, _)| range.start);
    let (mut runs, mut run, mut cursor) = (Vec::new(), Vec::new(), arena.start);
    for (range, serves) in pieces {
        if cursor < range.start {
            run.push((cursor..range.start, true));
        }
        cursor = range.end;
        match serves {
            true => run.push((range, false)),
            false => runs.push(std::mem::take(&mut run)),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Returns the missing ranges of a window, in whole pages.
fn missing(run: &[(Range<u64>, bool)], window: Range<u64>) -> Vec<Range<u64>> {
    let begin = window.start / PAGE_BYTES * PAGE_BYTES;
    let end = window.end.div_ceil(PAGE_BYTES) * PAGE_BYTES;
    let holes = run.iter().filter(|(_, is_hole)| *is_hole);
    let parts = holes.map(|(hole, _)| hole.start.max(begin)..hole.end.min(end));
    parts.filter(|part| part.start < part.end).collect()
}

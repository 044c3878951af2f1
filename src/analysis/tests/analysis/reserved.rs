//! The segments of the past, and the blocks beside their free pieces. The reference is the same
//! run, stopped earlier. `scripts/report/test.py` uses another allocator, at each moment, to check
//! the report's page and the command's output.

use cachealloc_analysis::model::{BlockState, Device, Entry, Segment};
use cachealloc_analysis::{AdjacentFree, Lifetimes, Moment, Reserved, adjacent_free};

use crate::made;

const MIB: u64 = 1 << 20;

/// Address, bytes and stream of a segment; address, bytes and state of each block.
type Told = (u64, u64, u64, Vec<(u64, u64, BlockState)>);

/// Returns the facts that a file has at any moment. It has neither the stack that reserved a
/// segment, nor whether a small remainder past the end of a block of a large segment belongs to the
/// block.
fn told(segments: &[Segment]) -> Vec<Told> {
    let is_told = |segment: &Segment, bytes: u64| {
        segment.expandable || segment.bytes <= 2 * MIB || bytes > MIB
    };
    let of_segment = |segment: &Segment| {
        let blocks = segment
            .blocks
            .iter()
            .filter(|block| block.state != BlockState::Free || is_told(segment, block.bytes));
        let blocks = blocks.map(|block| match block.state {
            BlockState::Free => (block.address, block.bytes, block.state),
            state => (block.address, block.requested_bytes, state),
        });
        (segment.address, segment.bytes, segment.stream, blocks.collect())
    };
    segments.iter().map(of_segment).collect()
}

fn same(one: &Entry, other: &Entry) -> bool {
    let of = |it: &Entry| (it.time_us, it.address, it.bytes, it.stream, it.action);
    of(one) == of(other)
}

#[test]
fn replay_agrees_with_a_truncated_run() {
    let (mut compared, mut went, mut pieces) = (0, 0, 0);
    for seed in 0..80 {
        let whole = made::read(&made::pickled(&made::history(seed, 240)));
        let whole = &whole.devices[0];
        let lifetimes = Lifetimes::of(whole);
        // A block freed before the history began, and only waiting for a stream, counts as free.
        if lifetimes.all.iter().any(|life| life.begin == life.end) {
            continue;
        }
        let mut reserved = Reserved::of(whole, &lifetimes);
        for steps in (10..240).step_by(10) {
            let part = made::read(&made::pickled(&made::history(seed, steps)));
            let part = &part.devices[0];
            let Some(moment) = common(whole, part) else { continue };
            let there = reserved.at(moment);
            assert_eq!(told(&there), told(&part.segments), "seed {seed}, {steps} steps");
            compared += 1;
            let is_gone = |part: &&Segment| {
                whole.segments.iter().all(|it| (it.address, it.bytes) != (part.address, part.bytes))
            };
            went += part.segments.iter().filter(is_gone).count();
            let blocks = there.iter().flat_map(|segment| &segment.blocks);
            pieces += blocks.filter(|block| block.state == BlockState::Free).count();
        }
    }
    assert!(compared > 300 && went > 300 && pieces > 300, "{compared}, {went}, {pieces}");
}

/// Returns the moment at which the part ends, if the whole run begins with it. Its last entry says
/// that a snapshot was taken.
fn common(whole: &Device, part: &Device) -> Option<Moment> {
    let entries = part.entries.range(0..part.entries.len().checked_sub(1)?);
    let begins_so = whole.entries.len() > entries.len()
        && entries.clone().zip(&whole.entries).all(|(one, other)| same(&one, &other));
    (begins_so && entries.len() > 0).then_some(entries.len() as Moment)
}

#[test]
fn blocks_beside_touch_a_free_piece() {
    let mut sites_count = 0;
    for seed in 0..60 {
        let snapshot = made::read(&made::pickled(&made::history(seed, 200)));
        for device in &snapshot.devices {
            let found = adjacent_free(&device.segments, |block| block.stack.0 % 3);
            for (site, adjacent_free) in &found {
                assert_eq!(
                    *adjacent_free,
                    naive(&device.segments, *site),
                    "seed {seed}, site {site}"
                );
            }
            let left_out = (0..3).filter(|it| found.iter().all(|(site, _)| site != it));
            left_out.for_each(|site| {
                assert_eq!(naive(&device.segments, site), AdjacentFree::default())
            });
            assert!(found.is_sorted_by(|one, other| one.1.free_bytes >= other.1.free_bytes));
            sites_count += found.len();
        }
    }
    assert!(sites_count > 60, "{sites_count}");
}

/// Compares each block with each other one by address.
fn naive(segments: &[Segment], site: u32) -> AdjacentFree {
    let mut adjacent_free = AdjacentFree::default();
    for blocks in segments.iter().map(|segment| &segment.blocks) {
        let is_free = |address: u64, end: u64| {
            let touches = |(from, to)| from == end || to == address;
            let free = blocks.iter().filter(|block| block.state == BlockState::Free);
            free.map(|block| (block.address, block.address + block.bytes)).any(touches)
        };
        let of_site = || {
            let used = blocks.iter().filter(|block| block.state != BlockState::Free);
            used.filter(|block| block.stack.0 % 3 == site)
        };
        for block in of_site().filter(|it| is_free(it.address, it.address + it.bytes)) {
            adjacent_free.blocks_count += 1;
            adjacent_free.blocks_bytes += block.bytes;
        }
        for free in blocks.iter().filter(|block| block.state == BlockState::Free) {
            let (from, to) = (free.address, free.address + free.bytes);
            if of_site().any(|it| it.address == to || it.address + it.bytes == from) {
                adjacent_free.free_count += 1;
                adjacent_free.free_bytes += free.bytes;
            }
        }
    }
    adjacent_free
}

//! Free memory in the segments of a device at a moment: its size, its pieces, and the blocks beside
//! them.

use std::collections::BTreeMap;

use cachealloc_analysis::model::{Block, BlockState, Device, Segment};
use cachealloc_analysis::{AdjacentFree, Failure, Moment, Reserved, Usage, adjacent_free};
use cachealloc_text::{bytes, count, plural};

use crate::tables::{Tables, Translation};
use crate::track::{Oom, Track};

/// Free memory of one device at a moment.
#[derive(Default)]
pub struct SegmentFree {
    pub segments_count: usize,
    pub usage: Usage,
    /// Number of free pieces of each size, largest size first.
    pub sizes: Vec<(u64, u64)>,
    /// Call sites beside them, most free bytes first.
    pub beside: Vec<BesideSite>,
}

pub struct BesideSite {
    pub site: String,
    pub beside: AdjacentFree,
}

impl SegmentFree {
    pub(crate) fn of(
        segments: &[Segment],
        translation: &Translation,
        tables: &Tables,
    ) -> SegmentFree {
        let site = |block: &Block| tables.site_of(translation.known(block.stack, block.category));
        let beside = adjacent_free(segments, site).into_iter();
        let named = |(site, beside)| BesideSite { site: tables.site_text(site), beside };
        SegmentFree {
            segments_count: segments.len(),
            usage: Usage::of_all(segments),
            sizes: sizes(segments),
            beside: beside.map(named).collect(),
        }
    }
}

/// Returns the segments at a moment of the page. The last moment has those of the file.
pub(crate) fn segments_at(reserved: &mut Reserved, track: &Track, moment: Moment) -> Vec<Segment> {
    let is_last = track.page_moment(moment) as usize == track.times_us.len();
    reserved.at(if is_last { track.lifetimes.last } else { moment })
}

/// Calls `visit` with the segments at each failed allocation, in order, while the time stays
/// proportional to the file.
pub(crate) fn at_failed(device: &Device, track: &Track, mut visit: impl FnMut(&Oom, &[Segment])) {
    if track.ooms.is_empty() {
        return;
    }
    let mut reserved = Reserved::of(device, &track.lifetimes);
    let mut left = WORK_MAX * device.entries.len();
    for oom in &track.ooms {
        let segments = segments_at(&mut reserved, track, oom.moment + 1);
        visit(oom, &segments);
        match left.checked_sub(reserved.work()) {
            Some(less) => left = less,
            None => break,
        }
    }
}

/// Segments and blocks visited per entry. A program may fail a thousand times with a hundred
/// thousand blocks.
const WORK_MAX: usize = 16;

/// Returns the description of a failed request.
pub(crate) fn request_text(oom: &Oom, failure: Option<&Failure>) -> String {
    match failure {
        Some(failure) => failure.title(),
        None => format!("an allocation asked for {}", bytes(oom.requested_bytes)),
    }
}

pub(crate) fn is_overcome(failure: &Option<Failure>) -> bool {
    failure.as_ref().is_some_and(|failure| failure.is_overcome)
}

/// Returns a sentence that explains why free memory did not help.
pub(crate) fn why(oom: &Oom, segments: &[Segment]) -> String {
    let (asked, usage) = (oom.requested_bytes, Usage::of_all(segments));
    let failed = format!("An allocation of {} failed: ", bytes(asked));
    let driver = format!("the driver had {}.", bytes(oom.free_bytes));
    if usage.free_count == 0 {
        return format!("{failed}no memory was free inside segments; {driver}");
    }
    let fitting = match fitting_count(&sizes(segments), asked) {
        0 => format!("all too small, the largest {}", bytes(usage.free_bytes_max)),
        number => format!("{} of them large enough, but for another stream or pool", count(number)),
    };
    let (free, pieces) = (bytes(usage.free_bytes), plural(usage.free_count, "piece"));
    format!("{failed}{free} were free inside segments, in {pieces}, {fitting}; {driver}")
}

/// Returns the number of free pieces that are at least as large as the request.
pub(crate) fn fitting_count(sizes: &[(u64, u64)], asked_bytes: u64) -> u64 {
    sizes.iter().filter(|(bytes, _)| *bytes >= asked_bytes).map(|(_, count)| count).sum()
}

fn sizes(segments: &[Segment]) -> Vec<(u64, u64)> {
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for block in blocks.filter(|block| block.state == BlockState::Free) {
        *sizes.entry(block.bytes).or_default() += 1;
    }
    sizes.into_iter().rev().collect()
}

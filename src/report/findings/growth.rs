//! Finds growth throughout a run: call sites whose blocks keep coming and are not freed, and ranges
//! whose passes leave more memory live than they found.
//!
//! Nearly every program frees everything when it ends. So a run is examined only up to its last
//! moments, in which hardly anything is allocated: blocks freed after that were not freed in the
//! run.

use std::collections::HashMap;

use cachealloc_text::{bytes, count};

use crate::inputs::DeviceTrack;
use crate::track::Track;

/// Blocks that a call site never freed in the run.
pub(crate) struct Growth {
    pub site: u32,
    pub bytes: u64,
    pub blocks: u64,
    /// Whether they were freed when the program ended.
    pub is_freed_at_end: bool,
}

/// Returns the growth of the site that leaves most.
pub(crate) fn of_sites(place: &DeviceTrack, site_of: impl Fn(u32) -> u32) -> Option<Growth> {
    let track = &place.track;
    let begin_us = *track.times_us.first()?;
    let end = run_end(track);
    let end_us = *track.times_us.get(end.checked_sub(1)? as usize)?;
    let mut by_site: HashMap<u32, Left> = HashMap::new();
    let is_left = |until: Option<u32>| until.is_none_or(|until| until >= end);
    let rows = track.rows.iter().zip(&place.stacks).filter(|(row, _)| row.from > 0);
    for (row, &stack) in rows.filter(|(row, _)| row.from <= end && is_left(row.until)) {
        let left = by_site.entry(site_of(stack)).or_default();
        left.bytes = left.bytes.saturating_add(track.life(row).bytes);
        left.freed += u64::from(row.until.is_some());
        left.times_us.push(track.times_us[row.from as usize - 1]);
    }
    let growing = by_site.into_iter().filter(|(_, left)| left.grows(begin_us, end_us));
    let (site, left) = growing.max_by_key(|(site, left)| (left.bytes, *site))?;
    let blocks = left.times_us.len() as u64;
    Some(Growth { site, bytes: left.bytes, blocks, is_freed_at_end: left.freed == blocks })
}

#[derive(Default)]
struct Left {
    bytes: u64,
    /// Number of blocks that were freed.
    freed: u64,
    /// Allocation times in ascending order.
    times_us: Vec<u64>,
}

/// Number of parts of equal time into which the run is divided.
const PARTS: u64 = 16;
const PARTS_LEAST: u32 = 14;
/// Fewest blocks of a growing site. Fewer may be parts of something larger.
const BLOCKS_LEAST: usize = 8;
/// Longest gap that is still regular, as a multiple of the run's length divided by the number of
/// blocks.
const GAP_MOST: u64 = 3;

impl Left {
    /// Returns whether blocks come in nearly all parts of the run. Blocks that start in its first
    /// half and have no long gap from then on count too.
    fn grows(&self, begin_us: u64, end_us: u64) -> bool {
        let count = self.times_us.len();
        if count < BLOCKS_LEAST || end_us <= begin_us {
            return false;
        }
        let part_us = (end_us - begin_us) / PARTS + 1;
        let parts = self.times_us.iter().fold(0u32, |parts, time_us| {
            parts | 1 << ((time_us - begin_us) / part_us).min(PARTS - 1)
        });
        if count as u64 >= PARTS && parts.count_ones() >= PARTS_LEAST {
            return true;
        }
        let first_us = self.times_us[0];
        let gap_most_us = (end_us - first_us) / count as u64 * GAP_MOST;
        let ends = self.times_us.iter().skip(1).chain([&end_us]);
        let gaps = self.times_us.iter().zip(ends).map(|(begin, end)| end.saturating_sub(*begin));
        first_us - begin_us <= (end_us - begin_us) / 2 && gaps.max() <= Some(gap_most_us)
    }
}

/// Returns the number of events before the program only frees. The end has the largest surplus of
/// frees, where an allocation cancels many frees.
fn run_end(track: &Track) -> u32 {
    let events = track.times_us.len();
    let mut changes = vec![0i32; events];
    for row in &track.rows {
        if row.from > 0 {
            changes[row.from as usize - 1] = 1;
        }
        if let Some(until) = row.until {
            changes[until as usize] = -1;
        }
    }
    let (mut end, mut score, mut most) = (events, 0i64, 0i64);
    for (event, change) in changes.iter().enumerate().rev() {
        match change {
            1 => score -= FREES_FOR_ONE,
            -1 => score += 1,
            _ => {}
        }
        if score > most {
            (end, most) = (event, score);
        }
    }
    // A run of frees only has no end to separate.
    if end == 0 { events as u32 } else { end as u32 }
}

const FREES_FOR_ONE: i64 = 20;

/// Returns the range whose passes leave most as a sentence, and that amount.
pub(crate) fn of_ranges(place: &DeviceTrack) -> Option<(u64, String)> {
    let track = &place.track;
    if place.passes.all.is_empty() {
        return None;
    }
    let live = track.live_bytes();
    let mut grew: HashMap<u32, (Vec<i64>, u32)> = HashMap::new();
    for pass in &place.passes.all {
        let [begin, end] = [pass.begin, pass.end].map(|it| track.page_moment(it) as usize);
        let change = i64::try_from(live[end]).unwrap_or(i64::MAX)
            - i64::try_from(live[begin]).unwrap_or(i64::MAX);
        let passes = grew.entry(pass.range).or_insert((Vec::new(), pass.depth.into()));
        passes.0.push(change);
    }
    let growing = grew.into_iter().filter_map(|(range, (passes, depth))| {
        let grown = passes.iter().filter(|change| **change > 0).count();
        let sum = passes.iter().fold(0i64, |sum, change| sum.saturating_add(*change));
        let is_regular = passes.len() >= PASSES_LEAST && grown * 4 >= passes.len();
        let sum = u64::try_from(sum).ok().filter(|sum| is_regular && *sum > 0)?;
        // Passes that grow and shrink in turn leave nothing.
        let shrunk = passes.iter().filter(|change| **change < 0).count();
        (shrunk * 2 <= grown).then_some((sum, depth, range, passes.len() as u64, grown as u64))
    });
    let (sum, _, range, passes, grown) = growing.max()?;
    let name = &place.passes.ranges[range as usize];
    let text = format!(
        "The range {name} keeps growing: {} left after {} passes; {} of them left memory.",
        bytes(sum),
        count(passes),
        count(grown),
    );
    Some((sum, text))
}

const PASSES_LEAST: usize = 8;

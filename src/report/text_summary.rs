//! Text form of the page's results that no other command prints, for readers without a browser. It
//! has failed allocations, growth per pass through a range, memory held longer than needed, and
//! blocks beside free pieces. It uses the page's moments and call sites.

use std::cmp::Reverse;
use std::collections::HashMap;

use cachealloc_analysis::model::Segment;
use cachealloc_analysis::waste::Pattern;
use cachealloc_analysis::{Moment, Reserved, When};

use crate::fit::FitWhen;
use crate::inputs::{DeviceTrack, Input};
use crate::layout::Layout;
use crate::segment_free::{SegmentFree, at_failed, fitting_count, segments_at};
use crate::track::{Row, Track};

pub struct TextSummary {
    /// Findings as sentences.
    pub findings: Vec<String>,
    pub devices: Vec<DeviceSummary>,
}

pub struct DeviceSummary {
    /// Number of its input.
    pub file: usize,
    pub device: usize,
    /// Failed allocations in order of occurrence.
    pub failed: Vec<Failed>,
    /// Ranges in the order in which they are first entered.
    pub ranges: Vec<Range>,
    /// Blocks held at the end of the history. They were never freed if it is the end of the
    /// program.
    pub held_at_end: Vec<Held>,
    /// [Early allocation](Pattern::Early).
    pub early: Vec<Held>,
    /// [Late deallocation](Pattern::Late).
    pub late: Vec<Held>,
    /// Segments at the requested moment and its time since the start, if the device has that
    /// moment.
    pub inside: Option<SegmentFree>,
    pub inside_us: u64,
}

/// An allocation that failed.
pub struct Failed {
    pub since_start_us: u64,
    pub requested_bytes: u64,
    pub device_free_bytes: u64,
    pub reserved_bytes: u64,
    pub live_bytes: u64,
    pub site: String,
    /// The segments at that time, for as many failed allocations as the time allows.
    pub inside: Option<SegmentFree>,
    /// Number of free pieces at least as large as the request, but of another stream or pool.
    pub fitting_count: u64,
}

/// A range that the program named.
pub struct Range {
    pub name: String,
    /// Passes by their begin; never empty.
    pub passes: Vec<RangePass>,
}

/// One pass, from the first entry of a range to its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangePass {
    pub since_start_us: u64,
    pub length_us: u64,
    /// Live bytes after the pass minus live bytes before it.
    pub grew_bytes: i64,
}

/// Blocks of one call site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub bytes: u64,
    pub blocks_count: u64,
    /// Time from the start to the allocation of the first block; `last_us` is that of the last.
    /// `None` if it was before the recording.
    pub first_us: Option<u64>,
    pub last_us: Option<u64>,
    /// Time at which the last block was freed, if any was.
    pub freed_us: Option<u64>,
    pub site: String,
}

impl Range {
    /// Returns the median, the maximum and the sum of the growth of all passes.
    pub fn grew_bytes(&self) -> (i64, i64, i64) {
        let mut sorted: Vec<i64> = self.passes.iter().map(|pass| pass.grew_bytes).collect();
        sorted.sort_unstable();
        let sum = sorted.iter().fold(0, |sum: i64, grew| sum.saturating_add(*grew));
        (sorted[sorted.len() / 2], sorted[sorted.len() - 1], sum)
    }
}

/// Computes the summary of a page with these `inputs` and `fit`. `at` is the moment of the
/// segments.
pub fn tell(inputs: &[Input], fit: FitWhen, at: When) -> TextSummary {
    let layout = Layout::of(inputs, fit);
    let devices = layout.places.iter();
    let devices = devices.map(|place| of_device(inputs, &layout, place, at)).collect();
    let findings = layout.findings.into_iter().map(|sentence| sentence.text).collect();
    TextSummary { devices, findings }
}

fn of_device(inputs: &[Input], layout: &Layout, place: &DeviceTrack, at: When) -> DeviceSummary {
    let track = &place.track;
    let moments = Moments::of(track);
    let site = |site| layout.tables.site_text(site);
    let ooms = track.ooms.iter().zip(&place.oom_stacks);
    let failed = ooms.map(|(oom, &stack)| {
        let moment = oom.event as usize + 1;
        Failed {
            since_start_us: moments.time_us(moment),
            requested_bytes: oom.requested_bytes,
            device_free_bytes: oom.free_bytes,
            reserved_bytes: moments.reserved_bytes[moment],
            live_bytes: moments.live_bytes[moment],
            site: site(layout.tables.site_of(stack)),
            inside: None,
            fitting_count: 0,
        }
    });
    let mut failed: Vec<Failed> = failed.collect();
    let device = &inputs[place.file].snapshot.devices[place.device];
    let translation = &layout.translations[place.file];
    let inside = |segments: &[Segment]| SegmentFree::of(segments, translation, &layout.tables);
    let mut next = failed.iter_mut();
    at_failed(device, track, |oom, segments| {
        if let Some(failed) = next.next() {
            let inside = inside(segments);
            failed.fitting_count = fitting_count(&inside.sizes, oom.requested_bytes);
            failed.inside = Some(inside);
        }
    });
    // A failed allocation changes nothing, so the page's moment is the one after it.
    let after = Moment::from(at == When::Shortage);
    let at = at.resolve(device, &track.lifetimes).map(|moment| moment + after);
    let inside_at = at.map(|moment| {
        let mut reserved = Reserved::of(device, &track.lifetimes);
        inside(&segments_at(&mut reserved, track, moment))
    });
    let names = place.passes.ranges.iter();
    let mut ranges: Vec<Range> =
        names.map(|name| Range { name: name.clone(), passes: Vec::new() }).collect();
    for pass in &place.passes.all {
        let [begin, end] = [pass.begin, pass.end].map(|moment| track.page_moment(moment) as usize);
        let live = |moment: usize| i128::from(moments.live_bytes[moment]);
        let grew = (live(end) - live(begin)).clamp(i64::MIN.into(), i64::MAX.into());
        let first = moments.time_us(end.min(begin + 1));
        ranges[pass.range as usize].passes.push(RangePass {
            since_start_us: first,
            length_us: moments.time_us(end) - first,
            grew_bytes: grew as i64,
        });
    }
    let held = |counts: fn(&Row) -> bool| held(layout, place, &moments, counts);
    DeviceSummary {
        file: place.file,
        device: place.device,
        failed,
        ranges,
        held_at_end: held(|row| row.until.is_none()),
        early: held(|row| row.shows(Pattern::Early)),
        late: held(|row| row.shows(Pattern::Late)),
        inside: inside_at,
        inside_us: at.map_or(0, |moment| moments.time_us(track.page_moment(moment) as usize)),
    }
}

/// Returns the blocks that `counts` selects, by call site.
fn held(
    layout: &Layout,
    place: &DeviceTrack,
    moments: &Moments,
    counts: fn(&Row) -> bool,
) -> Vec<Held> {
    let mut sites: HashMap<u32, Held> = HashMap::new();
    let rows = place.track.rows.iter().zip(&place.stacks);
    for (row, &stack) in rows.filter(|(row, _)| counts(row)) {
        let number = layout.tables.site_of(stack);
        let begin_us = (row.from > 0).then(|| moments.time_us(row.from as usize));
        let held = sites.entry(number).or_insert_with(|| Held {
            bytes: 0,
            blocks_count: 0,
            first_us: begin_us,
            last_us: begin_us,
            freed_us: None,
            site: layout.tables.site_text(number),
        });
        held.bytes = held.bytes.saturating_add(place.track.life(row).bytes);
        held.blocks_count += 1;
        // Rows are ordered by begin.
        held.last_us = begin_us;
        held.freed_us = held.freed_us.max(row.until.map(|it| moments.time_us(it as usize + 1)));
    }
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_unstable_by_key(|(number, held)| (Reverse(held.bytes), *number));
    sites.into_iter().map(|(_, held)| held).collect()
}

/// Sums at each moment of the page.
struct Moments<'a> {
    track: &'a Track,
    live_bytes: Vec<u64>,
    reserved_bytes: Vec<u64>,
}

impl Moments<'_> {
    fn of(track: &Track) -> Moments<'_> {
        let live_bytes = track.live_bytes();
        let mut reserved = vec![0i128; live_bytes.len()];
        reserved[0] = i128::from(track.reserved_before);
        for change in &track.reserves {
            reserved[change.event as usize + 1] += i128::from(change.bytes);
        }
        let reserved_bytes = added_up(reserved);
        Moments { track, live_bytes, reserved_bytes }
    }

    /// Returns the time since the first event.
    fn time_us(&self, moment: usize) -> u64 {
        let times = &self.track.times_us;
        let at = moment.saturating_sub(1);
        times.get(at).map_or(0, |time_us| time_us - times[0])
    }
}

fn added_up(changes: Vec<i128>) -> Vec<u64> {
    let mut now = 0;
    let sums = changes.into_iter().map(|change| {
        now += change;
        u64::try_from(now.max(0)).unwrap_or(u64::MAX)
    });
    sums.collect()
}

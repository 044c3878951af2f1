//! All data of the page: a small head in JSON, and columns.

use cachealloc_analysis::{Failure, Pass, Passes, failure_of, failures, overcame_others};

use crate::columns::Columns;
use crate::findings::common::Sentence;
use crate::fit::{FitWhen, Fits};
use crate::inputs::{DeviceTrack, Input, title};
use crate::segment_free::{at_failed, is_overcome, request_text, why};
use crate::segments::{Origins, Segments, pool_text};
use crate::tables::{Tables, Translation};
use crate::track::{Oom, Reserve, Row, Track};
use crate::{breakdown, findings, head};

pub(crate) struct Layout<'a> {
    pub title: String,
    pub findings: Vec<Sentence>,
    /// HTML.
    pub breakdown: String,
    /// HTML.
    pub fit: String,
    /// JSON.
    pub head: String,
    pub columns: Columns,
    pub places: Vec<DeviceTrack>,
    pub translations: Vec<Translation<'a>>,
    pub tables: Tables,
}

impl<'a> Layout<'a> {
    pub(crate) fn of(inputs: &'a [Input], when: FitWhen) -> Layout<'a> {
        let mut tables = Tables::default();
        let mut columns = Columns::default();
        let mut segments = Segments::default();
        let mut places = Vec::new();
        let mut translations: Vec<Translation> = inputs
            .iter()
            .enumerate()
            .map(|(file, input)| Translation::of(file, &input.snapshot))
            .collect();
        tables.find_sites(&mut translations);
        for (file, input) in inputs.iter().enumerate() {
            let translation = &mut translations[file];
            let told = failures(&input.snapshot);
            let overcame = overcame_others(&input.snapshot);
            for (device, content) in input.snapshot.devices.iter().enumerate() {
                if content.entries.is_empty() && content.segments.is_empty() {
                    continue;
                }
                let track = Track::of(content);
                let stack = |row: &Row| {
                    let life = track.life(row);
                    tables.stack(translation, life.stack, life.category)
                };
                let stacks = track.rows.iter().map(stack).collect();
                let origins = Origins::of(&input.snapshot, content);
                let row_ranges = origins.ranges(&track, &mut tables);
                let row_pools = origins.pools(&track, &mut tables);
                // The library of a free is that of the block.
                let free = |row: &Row| {
                    let (stack, life) = (track.freed_by(row, content), track.life(row));
                    tables.stack(translation, stack, life.category)
                };
                let free_stacks = track.rows.iter().map(free).collect();
                let reserve =
                    |it: &Reserve| tables.stack(translation, it.stack, Default::default());
                let reserve_stacks = track.reserves.iter().map(reserve).collect();
                let oom_stack =
                    |oom: &Oom| tables.stack(translation, oom.stack, Default::default());
                let oom_stacks = track.ooms.iter().map(oom_stack).collect();
                let failures: Vec<Option<Failure>> = track
                    .ooms
                    .iter()
                    .map(|oom| {
                        let entry = content.entries.at(oom.moment as usize);
                        let ordinal = device as u32;
                        let overcome = || overcame.then(|| Failure::overcome(ordinal, &entry));
                        failure_of(&told, ordinal, &entry).cloned().or_else(overcome)
                    })
                    .collect();
                let oom_titles = track
                    .ooms
                    .iter()
                    .zip(&failures)
                    .map(|(oom, failure)| tables.text(&request_text(oom, failure.as_ref())))
                    .collect();
                let mut oom_whys = Vec::new();
                at_failed(content, &track, |oom, segments| {
                    oom_whys.push(tables.text(&why(oom, segments)));
                });
                let pools = track.reserves.iter();
                let pools = pools
                    .map(|change| pool_text(&input.snapshot, change.pool, &mut tables))
                    .collect();
                segments.add(&input.snapshot, device, places.len(), translation, &mut tables);
                let passes = Passes::of(content, &input.snapshot.texts);
                let ranges = passes.ranges.iter().map(|range| tables.text(range)).collect();
                places.push(DeviceTrack {
                    file,
                    device,
                    track,
                    stacks,
                    row_ranges,
                    row_pools,
                    free_stacks,
                    reserve_stacks,
                    oom_stacks,
                    failures,
                    oom_titles,
                    oom_whys,
                    pools,
                    passes,
                    ranges,
                });
            }
        }
        let fits = Fits::of(inputs, when);
        let findings = findings::of(inputs, &places, &mut translations, &mut tables, &fits);
        // The columns come last: while they grow, nothing else does.
        for (number, place) in places.iter().enumerate() {
            write_track(&mut columns, number, place);
        }
        segments.write(&mut columns);
        tables.write(&mut columns);
        let head = head::head(inputs, &places, &columns);
        let breakdown = breakdown::section(inputs);
        let fit = fits.section(inputs);
        let title = title(inputs);
        Layout { title, findings, breakdown, fit, head, columns, places, translations, tables }
    }
}

fn write_track(columns: &mut Columns, number: usize, place: &DeviceTrack) {
    let track = &place.track;
    let name = |field: &str| format!("track{number}.{field}");
    let begin_us = track.times_us.first().copied().unwrap_or(0);
    columns.delta(&name("time"), track.times_us.iter().map(|time| time - begin_us));
    columns.delta(&name("from"), track.rows.iter().map(|row| row.from.into()));
    let lives = || track.rows.iter().map(|row| track.life(row));
    let length = |row: &Row| match row.until {
        Some(until) => u64::from(until) + 1 - u64::from(row.from),
        None => 0,
    };
    columns.unsigned(&name("life"), track.rows.iter().map(length));
    columns.unsigned(&name("bytes"), lives().map(|life| life.bytes));
    columns.unsigned(&name("stack"), place.stacks.iter().map(|&stack| stack.into()));
    columns.unsigned(&name("range"), place.row_ranges.iter().map(|&text| text.into()));
    columns.unsigned(&name("pool"), place.row_pools.iter().map(|&text| text.into()));
    columns.unsigned(&name("freed_by"), place.free_stacks.iter().map(|&stack| stack.into()));
    columns.unsigned(&name("stream"), lives().map(|life| life.stream));
    columns.unsigned(&name("patterns"), track.rows.iter().map(|row| row.patterns.into()));
    write_addresses(columns, number, track);
    let reserves = || track.reserves.iter();
    columns.delta(&name("reserve.event"), reserves().map(|change| change.event.into()));
    columns.signed(&name("reserve.bytes"), reserves().map(|change| change.bytes));
    columns.unsigned(&name("reserve.address"), reserves().map(|change| change.address));
    columns.unsigned(&name("reserve.stream"), reserves().map(|change| change.stream));
    columns.unsigned(&name("reserve.pool"), place.pools.iter().map(|&pool| pool.into()));
    columns.unsigned(&name("reserve.part"), reserves().map(|change| change.part.into()));
    columns
        .unsigned(&name("reserve.stack"), place.reserve_stacks.iter().map(|&stack| stack.into()));
    columns.delta(&name("oom.event"), track.ooms.iter().map(|oom| oom.event.into()));
    columns.unsigned(&name("oom.requested"), track.ooms.iter().map(|oom| oom.requested_bytes));
    columns.unsigned(&name("oom.free"), track.ooms.iter().map(|oom| oom.free_bytes));
    columns.unsigned(&name("oom.stack"), place.oom_stacks.iter().map(|&stack| stack.into()));
    columns.unsigned(&name("oom.title"), place.oom_titles.iter().map(|&text| text.into()));
    columns.unsigned(&name("oom.overcome"), place.failures.iter().map(|it| is_overcome(it).into()));
    columns.unsigned(&name("oom.why"), place.oom_whys.iter().map(|&text| text.into()));
    write_passes(columns, number, place);
}

/// Writes the passes through the ranges of the program, in moments of the page.
fn write_passes(columns: &mut Columns, number: usize, place: &DeviceTrack) {
    let name = |field: &str| format!("track{number}.pass.{field}");
    let passes = || place.passes.all.iter();
    let at = |moment| u64::from(place.track.page_moment(moment));
    let length = |pass: &Pass| at(pass.end) - at(pass.begin);
    columns.delta(&name("begin"), passes().map(|pass| at(pass.begin)));
    columns.unsigned(&name("length"), passes().map(length));
    columns.unsigned(&name("range"), passes().map(|it| place.ranges[it.range as usize].into()));
    columns.unsigned(&name("depth"), passes().map(|pass| pass.depth.into()));
}

/// Writes the addresses of the blocks. An allocator reuses addresses, so each is written once, in
/// order, and rows have its number. Also writes the versions in PyTorch's names, and the blocks
/// that a stream may have used after their free.
fn write_addresses(columns: &mut Columns, number: usize, track: &Track) {
    let rows = &track.rows;
    let name = |field: &str| format!("track{number}.{field}");
    let all = distinct(rows.iter().map(|row| track.life(row).address));
    let place = |row: &Row| all.binary_search(&track.life(row).address).unwrap_or_default() as u64;
    columns.unsigned(&name("place"), rows.iter().map(place));
    columns.delta(&name("address"), all.iter().copied());
    let others = &track.other_versions;
    columns.delta(&name("version.row"), others.iter().map(|&(row, _)| row.into()));
    columns.unsigned(&name("version.number"), others.iter().map(|&(_, version)| version.into()));
    let wait = |row: &Row| track.waiting_moments(row);
    let waits = || (0..).zip(rows.iter().map(wait)).filter(|&(_, moments)| moments > 0);
    columns.delta(&name("wait.row"), waits().map(|(row, _)| row));
    columns.unsigned(&name("wait.moments"), waits().map(|(_, moments)| moments.into()));
}

/// Returns the distinct numbers in order. It sorts whenever the list has doubled, because an
/// allocator reuses few addresses for millions of blocks.
fn distinct(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut all = Vec::new();
    let mut sort_at = DISTINCT_LEAST;
    for number in numbers {
        all.push(number);
        if all.len() >= sort_at {
            all.sort_unstable();
            all.dedup();
            sort_at = DISTINCT_LEAST.max(2 * all.len());
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

const DISTINCT_LEAST: usize = 1 << 16;

//! What a reader should know first, in plain sentences.

use std::collections::HashMap;

use cachealloc_analysis::model::{BlockState, Dropped};

use crate::Input;
use crate::layout::{Place, TEMPORARY_BETWEEN_MAX};
use crate::tables::Tables;
use crate::text::{bytes, count, plural, share, time};

pub fn of(inputs: &[Input], places: &[Place], tables: &Tables) -> Vec<String> {
    let mut findings = Vec::new();
    for place in places {
        let mut own = Vec::new();
        let run = Run::of(place);
        peak(&run, place, tables, &mut own);
        out_of_memory(&run, place, tables, &mut own);
        never_freed(place, tables, &mut own);
        temporary(&run, place, tables, &mut own);
        fragmentation(&inputs[place.file], place, &mut own);
        let several = places.len() > 1;
        let whose = if several { whose(inputs, place) } else { String::new() };
        findings.extend(own.into_iter().map(|finding| format!("{whose}{finding}")));
    }
    for input in inputs {
        let several = if inputs.len() > 1 { format!("{}: ", input.name) } else { String::new() };
        findings.extend(what_is_missing(input).map(|finding| format!("{several}{finding}")));
    }
    findings
}

fn whose(inputs: &[Input], place: &Place) -> String {
    let name = &inputs[place.file].name;
    match inputs.len() {
        1 => format!("Device {}: ", place.device),
        _ if inputs[place.file].snapshot.devices.len() == 1 => format!("{name}: "),
        _ => format!("{name}, device {}: ", place.device),
    }
}

/// The sums at the moments that matter.
struct Run {
    peak: u32,
    peak_bytes: u64,
    reserved_at_peak: u64,
    /// How many allocations had happened at each moment.
    allocations: Vec<u32>,
}

impl Run {
    fn of(place: &Place) -> Run {
        let track = &place.track;
        let events = track.times_us.len();
        let mut changes = vec![0i128; events];
        let mut allocates = vec![false; events];
        let mut alive: i128 = 0;
        for row in &track.rows {
            match row.from {
                0 => alive += i128::from(row.bytes),
                from => {
                    changes[from as usize - 1] += i128::from(row.bytes);
                    allocates[from as usize - 1] = true;
                }
            }
            if let Some(until) = row.until {
                changes[until as usize] -= i128::from(row.bytes);
            }
        }
        let mut peak = (0, alive);
        let mut allocations = vec![0; events + 1];
        for (event, change) in changes.iter().enumerate() {
            alive += change;
            allocations[event + 1] = allocations[event] + u32::from(allocates[event]);
            if alive > peak.1 {
                peak = (event as u32 + 1, alive);
            }
        }
        let until_peak = track.reserves.iter().filter(|change| change.0 < peak.0);
        let reserved = until_peak.map(|change| i128::from(change.1)).sum::<i128>();
        let reserved = reserved + i128::from(track.reserved_before);
        let unsigned = |number: i128| u64::try_from(number.max(0)).unwrap_or(u64::MAX);
        Run {
            peak: peak.0,
            peak_bytes: unsigned(peak.1),
            reserved_at_peak: unsigned(reserved),
            allocations,
        }
    }

    /// How many other allocations came between a block's and its free.
    fn between(&self, row: &crate::track::Row) -> Option<u32> {
        let until = self.allocations[row.until? as usize];
        Some(until - self.allocations[row.from as usize])
    }
}

/// Bytes and blocks of the call sites, of those rows that `counts` names; the largest first.
fn sites(
    place: &Place,
    tables: &Tables,
    counts: impl Fn(&crate::track::Row) -> bool,
) -> Vec<(u32, u64, u64)> {
    let mut by_site: HashMap<u32, (u64, u64)> = HashMap::new();
    for (row, &stack) in place.track.rows.iter().zip(&place.stacks) {
        if counts(row) {
            let site = by_site.entry(tables.stack_row(stack).site).or_default();
            site.0 = site.0.saturating_add(row.bytes);
            site.1 += 1;
        }
    }
    let mut sites: Vec<_> =
        by_site.into_iter().map(|(site, sums)| (site, sums.0, sums.1)).collect();
    sites.sort_unstable_by_key(|&(site, bytes, _)| (std::cmp::Reverse(bytes), site));
    sites
}

fn time_of(place: &Place, moment: u32) -> String {
    let times = &place.track.times_us;
    let begin = times.first().copied().unwrap_or(0);
    let at = times.get((moment as usize).saturating_sub(1)).copied().unwrap_or(begin);
    time(at - begin)
}

fn peak(run: &Run, place: &Place, tables: &Tables, findings: &mut Vec<String>) {
    if run.peak_bytes == 0 {
        return;
    }
    let at_peak = |row: &crate::track::Row| {
        row.from <= run.peak && row.until.is_none_or(|until| until >= run.peak)
    };
    let sites = sites(place, tables, at_peak);
    let most = sites.first().map(|&(site, held, _)| {
        format!(", {} of it from {}", share(held, run.peak_bytes), tables.site_text(site))
    });
    let when = match place.track.times_us.len() {
        0 | 1 => "There".to_string(),
        _ => format!("At the peak, {} after the begin, there", time_of(place, run.peak)),
    };
    findings.push(format!(
        "{when} were {} alive{}; {} were reserved.",
        bytes(run.peak_bytes),
        most.unwrap_or_default(),
        bytes(run.reserved_at_peak),
    ));
}

fn out_of_memory(run: &Run, place: &Place, tables: &Tables, findings: &mut Vec<String>) {
    let Some(first) = place.track.ooms.first() else { return };
    let moment = first.event + 1;
    let alive = |row: &crate::track::Row| {
        row.from <= moment && row.until.is_none_or(|until| until >= moment)
    };
    let holder = sites(place, tables, alive)
        .first()
        .map(|&(site, held, _)| format!("; {} held most, {}", tables.site_text(site), bytes(held)));
    let number = place.track.ooms.len() as u64;
    let which = if number == 1 { "" } else { "the first " };
    findings.push(format!(
        "{} could not be served: {which}{} at {}, when {} were free on the device{}.",
        plural(number, "request"),
        bytes(first.requested_bytes),
        time_of(place, moment),
        bytes(first.free_bytes),
        holder.unwrap_or_default(),
    ));
    let _ = run;
}

fn never_freed(place: &Place, tables: &Tables, findings: &mut Vec<String>) {
    if place.track.times_us.len() < 2 {
        return; // without history nothing is known of frees
    }
    let sites = sites(place, tables, |row| row.until.is_none());
    let Some(&(site, most, _)) = sites.first() else {
        findings.push("Every block was freed before the snapshot was taken.".to_string());
        return;
    };
    let held = sites.iter().fold(0u64, |sum, site| sum.saturating_add(site.1));
    let blocks = sites.iter().map(|site| site.2).sum();
    let from = tables.site_text(site);
    findings.push(match sites.len() {
        1 => format!("{}, {}, never freed: from {from}.", plural(blocks, "block"), bytes(held)),
        _ => format!(
            "{}, {}, never freed: most ({}) from {from}.",
            plural(blocks, "block"),
            bytes(held),
            bytes(most),
        ),
    });
}

fn temporary(run: &Run, place: &Place, tables: &Tables, findings: &mut Vec<String>) {
    let is_temporary = |row: &crate::track::Row| {
        row.from > 0 && run.between(row).is_some_and(|between| between <= TEMPORARY_BETWEEN_MAX)
    };
    let mut sites = sites(place, tables, is_temporary);
    sites.sort_by_key(|&(_, _, blocks)| std::cmp::Reverse(blocks));
    let blocks: u64 = sites.iter().map(|site| site.2).sum();
    let all = u64::from(*run.allocations.last().unwrap_or(&0));
    let Some(&(site, _, most)) = sites.first() else { return };
    // A few of them are in every program.
    if blocks < 10 || blocks * 100 < all {
        return;
    }
    findings.push(format!(
        "{} of {} allocations ({}) were temporary, freed with at most {TEMPORARY_BETWEEN_MAX} other in between: most ({}) from {}.",
        count(blocks),
        count(all),
        share(blocks, all),
        count(most),
        tables.site_text(site),
    ));
}

fn fragmentation(input: &Input, place: &Place, findings: &mut Vec<String>) {
    let segments = &input.snapshot.devices[place.device].segments;
    let mut reserved = 0u64;
    let mut split = 0u64;
    for segment in segments {
        let used = segment.blocks.iter().filter(|block| block.state != BlockState::Free);
        let used = used.fold(0u64, |sum, block| sum.saturating_add(block.bytes));
        reserved = reserved.saturating_add(segment.bytes);
        if used > 0 {
            split = split.saturating_add(segment.bytes.saturating_sub(used));
        }
    }
    if split > reserved / 10 {
        findings.push(format!(
            "{} of {} reserved at the end ({}) are free, but between blocks in use: fragmentation.",
            bytes(split),
            bytes(reserved),
            share(split, reserved),
        ));
    }
}

fn what_is_missing(input: &Input) -> impl Iterator<Item = String> {
    let snapshot = &input.snapshot;
    let lost = match snapshot.settings.dropped {
        Dropped::Count(0) | Dropped::Unknown => None,
        Dropped::Count(lost) => Some(format!(
            "The recording lost {}, always the oldest: what was before is not shown (max_entries).",
            plural_of_entries(lost),
        )),
    };
    let no_history = snapshot.devices.iter().all(|device| device.entries.len() <= 1);
    let no_history = no_history.then(|| {
        "There is no history in the file, only what was alive: record:all remembers every allocation.".to_string()
    });
    lost.into_iter().chain(no_history)
}

fn plural_of_entries(lost: u64) -> String {
    if lost == 1 { "1 entry".to_string() } else { format!("{} entries", count(lost)) }
}

//! Prints the findings of a report: in sentences and tables, and as JSON.

mod json;

use std::fmt::Write as _;

use cachealloc_analysis::{Usage, When};
use cachealloc_report::{
    BesideSite, DeviceSummary, Failed, Held, Input, Range, SegmentFree, TextSummary,
};
use cachealloc_text::plain;

use super::{Column, Table, bytes, count, plural, signed_bytes, time};
pub(crate) use json::json;

/// Formats at most `number` rows of each table. `at` is the requested moment.
pub(crate) fn text(inputs: &[Input], told: &TextSummary, at: When, number: usize) -> String {
    let mut text = String::new();
    told.findings.iter().for_each(|finding| _ = writeln!(text, "{}", plain(finding)));
    for device in &told.devices {
        let ordinal = format!("device {}", device.device);
        let whose = match inputs.len() {
            1 => ordinal,
            _ => format!("{}, {ordinal}", plain(&inputs[device.file].name)),
        };
        if !device.failed.is_empty() {
            let failed = plural(device.failed.len() as u64, "failed allocation");
            let _ = write!(text, "\n{whose}: {failed}\n\n{}", failed_table(&device.failed, number));
        }
        if !device.ranges.is_empty() {
            let table = ranges_table(&device.ranges, number);
            let _ = write!(text, "\n{whose}: growth of each pass through a range\n\n{table}");
        }
        for (what, held) in waste(device).into_iter().filter(|(_, held)| !held.is_empty()) {
            let _ = write!(text, "\n{whose}: {what}\n\n{}", held_table(held, number));
        }
        // At the end, a report is about the first failed allocation; `at` chooses any.
        let first = device.failed.first().filter(|_| at == When::End);
        let then = first.and_then(|failed| Some((failed.inside.as_ref()?, when_failed(failed))));
        let now = device.inside.as_ref().map(|inside| (inside, when(at, device)));
        let mut shown = String::new();
        for (inside, when) in then.into_iter().chain(now) {
            let table = beside_table(&inside.beside, number);
            // An unchanged table is not repeated.
            if !inside.beside.is_empty() && table != shown {
                let _ = write!(text, "\n{whose}: {}\n\n", fragmentation(inside, &when));
                text += &table;
                shown = table;
            }
        }
    }
    text
}

fn failed_table(failed: &[Failed], number: usize) -> String {
    let mut table = Table::new([
        Column::number("AFTER"),
        Column::number("REQUESTED"),
        Column::number("FREE ON DEVICE"),
        Column::number("RESERVED"),
        Column::number("LIVE"),
        Column::number("FREE INSIDE"),
        Column::number("PIECES"),
        Column::number("LARGEST"),
        Column::text("WHERE"),
    ]);
    for failed in failed.iter().take(number) {
        let usage = failed.inside.as_ref().map(|inside| inside.usage);
        let [free, largest] = [|it: Usage| it.free_bytes, |it: Usage| it.free_bytes_max]
            .map(|of| usage.map_or("-".to_string(), |usage| bytes(of(usage))));
        table.row([
            time(failed.since_start_us.saturating_mul(1000)),
            bytes(failed.requested_bytes),
            bytes(failed.device_free_bytes),
            bytes(failed.reserved_bytes),
            bytes(failed.live_bytes),
            free,
            usage.map_or("-".to_string(), |usage| count(usage.free_count)),
            largest,
            failed.site.clone(),
        ]);
    }
    table.text() + &left(failed.len(), number)
}

fn ranges_table(ranges: &[Range], number: usize) -> String {
    let mut table = Table::new([
        Column::number("PASSES"),
        Column::number("TYPICALLY"),
        Column::number("AT MOST"),
        Column::number("IN ALL"),
        Column::text("RANGE"),
    ]);
    for range in ranges.iter().take(number) {
        let (median, most, sum) = range.grew_bytes();
        let [median, most, sum] = [median, most, sum].map(|grew| signed_bytes(grew.into()));
        table.row([count(range.passes.len() as u64), median, most, sum, range.name.clone()]);
    }
    table.text() + &left(ranges.len(), number)
}

fn waste(device: &DeviceSummary) -> [(&'static str, &[Held]); 3] {
    [
        ("held at the end", &device.held_at_end),
        ("early allocation: held at the peak, allocated before the first free", &device.early),
        ("late deallocation: held at the peak, freed after the last allocation", &device.late),
    ]
}

fn held_table(held: &[Held], number: usize) -> String {
    let mut table = Table::new([
        Column::number("BYTES"),
        Column::number("BLOCKS"),
        Column::number("FIRST"),
        Column::number("LAST"),
        Column::number("FREED"),
        Column::text("WHERE"),
    ])
    .dropping(&["FREED", "LAST", "FIRST", "BLOCKS"]);
    let at = |time_us: Option<u64>, none: &str| match time_us {
        Some(time_us) => time(time_us.saturating_mul(1000)),
        None => none.to_string(),
    };
    for held in held.iter().take(number) {
        table.row([
            bytes(held.bytes),
            count(held.blocks_count),
            at(held.first_us, "before"),
            at(held.last_us, "before"),
            at(held.freed_us, "-"),
            held.site.clone(),
        ]);
    }
    table.text() + &left(held.len(), number)
}

fn when_failed(failed: &Failed) -> String {
    let (asked, after) = (failed.requested_bytes, failed.since_start_us.saturating_mul(1000));
    format!("when an allocation of {} failed, {} after start", bytes(asked), time(after))
}

fn when(at: When, device: &DeviceSummary) -> String {
    let after = format!("{} after start", time(device.inside_us.saturating_mul(1000)));
    match at {
        When::End => "at the end".to_string(),
        When::Peak => format!("at the peak, {after}"),
        When::Shortage => device.failed.last().map_or(after, when_failed),
        When::Entry(_) | When::AfterUs(_) => after,
    }
}

fn fragmentation(inside: &SegmentFree, when: &str) -> String {
    let segments = plural(inside.segments_count as u64, "segment");
    let usage = inside.usage;
    format!(
        "{segments}, {} reserved {when}, {} of it free; {} inside segments in partial use, beside",
        bytes(usage.reserved_bytes),
        bytes(usage.free_bytes),
        bytes(usage.stuck_bytes)
    )
}

fn beside_table(sites: &[BesideSite], number: usize) -> String {
    let mut table = Table::new([
        Column::number("FREE BESIDE"),
        Column::number("PIECES"),
        Column::number("BLOCKS"),
        Column::number("THEIR BYTES"),
        Column::text("WHERE"),
    ])
    .dropping(&["THEIR BYTES", "BLOCKS", "PIECES"]);
    for BesideSite { site, beside } in sites.iter().take(number) {
        table.row([
            bytes(beside.free_bytes),
            count(beside.free_count),
            count(beside.blocks_count),
            bytes(beside.blocks_bytes),
            site.clone(),
        ]);
    }
    table.text() + &left(sites.len(), number)
}

fn left(rows: usize, number: usize) -> String {
    match rows.saturating_sub(number) {
        0 => String::new(),
        left => format!("and {} more: print all with -n 0\n", count(left as u64)),
    }
}

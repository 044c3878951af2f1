//! What a report says first: in sentences and tables, and as JSON.

use std::fmt::Write as _;
use std::io;

use cachealloc_report::{BesideSite, Failed, Held, Input, Range, RangePass, Told, ToldDevice};
use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_text::{Json, plain};

use super::{Column, Table, bytes, count, plural, signed_bytes, time};
use crate::commands::Result;
use crate::failure::Failure;

/// At most `number` rows of each table.
pub(crate) fn text(inputs: &[Input], told: &Told, number: usize) -> String {
    let mut text = String::new();
    told.findings.iter().for_each(|finding| _ = writeln!(text, "{}", plain(finding)));
    for device in &told.devices {
        let gpu = format!("GPU {}", device.device);
        let whose = match inputs.len() {
            1 => gpu,
            _ => format!("{}, {gpu}", plain(&inputs[device.file].name)),
        };
        if !device.failed.is_empty() {
            let failed = plural(device.failed.len() as u64, "failed allocation");
            let _ = write!(text, "\n{whose}: {failed}\n\n{}", failed_table(&device.failed, number));
        }
        if !device.ranges.is_empty() {
            let table = ranges_table(&device.ranges, number);
            let _ = write!(text, "\n{whose}: what each pass through a range grew by\n\n{table}");
        }
        for (what, held) in waste(device).into_iter().filter(|(_, held)| !held.is_empty()) {
            let _ = write!(text, "\n{whose}: {what}\n\n{}", held_table(held, number));
        }
        if !device.beside.is_empty() {
            let _ = write!(text, "\n{whose}: {}\n\n", fragmentation(device));
            text += &beside_table(&device.beside, number);
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
        Column::text("WHERE"),
    ]);
    for failed in failed.iter().take(number) {
        table.row([
            time(failed.since_start_us.saturating_mul(1000)),
            bytes(failed.requested_bytes),
            bytes(failed.device_free_bytes),
            bytes(failed.reserved_bytes),
            bytes(failed.live_bytes),
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

fn waste(device: &ToldDevice) -> [(&'static str, &[Held]); 3] {
    [
        ("held at the end", &device.held_at_end),
        (
            "early allocation: held at the peak, and there since before the first free",
            &device.early,
        ),
        ("late deallocation: held at the peak, and freed after the last allocation", &device.late),
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
    ]);
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

fn fragmentation(device: &ToldDevice) -> String {
    let segments = plural(device.segments_count as u64, "segment");
    let usage = device.usage;
    format!(
        "{segments}, {} reserved at the end, {} of it free; {} inside those that are partly used, beside",
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
    ]);
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
        left => format!("and {} more: -n 0 prints all\n", count(left as u64)),
    }
}

pub(crate) fn json(inputs: &[Input], told: &Told) -> Result<String> {
    let mut text = Vec::new();
    let mut json = Json::new(&mut text);
    let written = json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        json.key("findings")?.list(&told.findings, |json, finding| {
            json.line()?;
            json.text(finding)
        })?;
        json.key("devices")?.list(&told.devices, |json, device| {
            json.line()?;
            json.object(|json| of_device(json, &inputs[device.file].name, device))
        })
    });
    let why = |error| Failure::new(format!("cannot write JSON: {error}"));
    written.and_then(|()| json.end()).map_err(why)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn of_device<W: io::Write>(json: &mut Json<W>, file: &str, device: &ToldDevice) -> io::Result<()> {
    json.key("file")?.text(file)?;
    json.key("device")?.number(device.device)?;
    json.key("failed_allocations")?.list(&device.failed, |json, failed| {
        json.line()?;
        json.object(|json| {
            json.key("since_start_us")?.number(failed.since_start_us)?;
            json.key("requested_bytes")?.number(failed.requested_bytes)?;
            json.key("device_free_bytes")?.number(failed.device_free_bytes)?;
            json.key("reserved_bytes")?.number(failed.reserved_bytes)?;
            json.key("live_bytes")?.number(failed.live_bytes)?;
            json.key("where")?.text(&failed.site)
        })
    })?;
    json.key("ranges")?.list(&device.ranges, |json, range| {
        json.line()?;
        json.object(|json| {
            let (median, most, sum) = range.grew_bytes();
            json.key("range")?.text(&range.name)?;
            json.key("grew_bytes_median")?.number(median)?;
            json.key("grew_bytes_max")?.number(most)?;
            json.key("grew_bytes_sum")?.number(sum)?;
            json.key("passes")?.list(&range.passes, |json, pass| pass_of(json, pass))
        })
    })?;
    for (key, held) in
        [("held_at_end", &device.held_at_end), ("early", &device.early), ("late", &device.late)]
    {
        json.key(key)?.list(held, |json, held| {
            json.line()?;
            json.object(|json| held_of(json, held))
        })?;
    }
    json.key("segments")?.number(device.segments_count)?;
    json.key("reserved_bytes")?.number(device.usage.reserved_bytes)?;
    json.key("free_bytes")?.number(device.usage.free_bytes)?;
    json.key("stuck_bytes")?.number(device.usage.stuck_bytes)?;
    json.key("beside_free")?.list(&device.beside, |json, BesideSite { site, beside }| {
        json.line()?;
        json.object(|json| {
            json.key("free_bytes")?.number(beside.free_bytes)?;
            json.key("free_pieces")?.number(beside.free_count)?;
            json.key("blocks")?.number(beside.blocks_count)?;
            json.key("block_bytes")?.number(beside.blocks_bytes)?;
            json.key("where")?.text(site)
        })
    })
}

fn held_of<W: io::Write>(json: &mut Json<W>, held: &Held) -> io::Result<()> {
    json.key("bytes")?.number(held.bytes)?;
    json.key("blocks")?.number(held.blocks_count)?;
    let times =
        [("first_us", held.first_us), ("last_us", held.last_us), ("freed_us", held.freed_us)];
    for (key, time_us) in times {
        let json = json.key(key)?;
        match time_us {
            Some(time_us) => json.number(time_us)?,
            None => json.null()?,
        }
    }
    json.key("where")?.text(&held.site)
}

fn pass_of<W: io::Write>(json: &mut Json<W>, pass: &RangePass) -> io::Result<()> {
    json.object(|json| {
        json.key("since_start_us")?.number(pass.since_start_us)?;
        json.key("length_us")?.number(pass.length_us)?;
        json.key("grew_bytes")?.number(pass.grew_bytes)
    })
}

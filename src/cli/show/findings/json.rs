//! Writes the findings as JSON, described in `docs/schema.json`.

use std::io;

use cachealloc_report::{
    BesideSite, DeviceSummary, Held, Input, RangePass, SegmentFree, TextSummary,
};
use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_text::Json;

use crate::commands::Result;
use crate::failure::Failure;

pub(crate) fn json(inputs: &[Input], told: &TextSummary) -> Result<String> {
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

fn of_device<W: io::Write>(
    json: &mut Json<W>,
    file: &str,
    device: &DeviceSummary,
) -> io::Result<()> {
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
            json.key("where")?.text(&failed.site)?;
            let known = failed.inside.as_ref();
            let fitting = known.map(|_| failed.fitting_count);
            number_or_null(json.key("fitting_pieces")?, fitting)?;
            match known {
                Some(inside) => json.key("inside")?.object(|json| {
                    json.key("segments")?.number(inside.segments_count)?;
                    inside_of(json, inside)
                }),
                None => json.key("inside")?.null(),
            }
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
    json.key("since_start_us")?;
    number_or_null(json, device.inside.as_ref().map(|_| device.inside_us))?;
    let nothing = SegmentFree::default();
    let inside = device.inside.as_ref().unwrap_or(&nothing);
    json.key("segments")?.number(inside.segments_count)?;
    json.key("reserved_bytes")?.number(inside.usage.reserved_bytes)?;
    inside_of(json, inside)
}

/// Writes the free memory inside the segments and the memory beside it.
fn inside_of<W: io::Write>(json: &mut Json<W>, inside: &SegmentFree) -> io::Result<()> {
    let usage = &inside.usage;
    json.key("free_bytes")?.number(usage.free_bytes)?;
    json.key("stuck_bytes")?.number(usage.stuck_bytes)?;
    json.key("wholly_free_bytes")?.number(usage.free_bytes.saturating_sub(usage.stuck_bytes))?;
    json.key("free_sizes")?.list(&inside.sizes, |json, &(bytes, count)| {
        json.object(|json| {
            json.key("bytes")?.number(bytes)?;
            json.key("count")?.number(count)
        })
    })?;
    json.key("beside_free")?.list(&inside.beside, |json, BesideSite { site, beside }| {
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

fn number_or_null<W: io::Write>(json: &mut Json<W>, number: Option<u64>) -> io::Result<()> {
    match number {
        Some(number) => json.number(number),
        None => json.null(),
    }
}

fn held_of<W: io::Write>(json: &mut Json<W>, held: &Held) -> io::Result<()> {
    json.key("bytes")?.number(held.bytes)?;
    json.key("blocks")?.number(held.blocks_count)?;
    let times =
        [("first_us", held.first_us), ("last_us", held.last_us), ("freed_us", held.freed_us)];
    for (key, time_us) in times {
        number_or_null(json.key(key)?, time_us)?;
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

//! Prints call sites as a table and as JSON.

use std::fmt::Write as _;

use cachealloc_analysis::formats::Bounded;
use cachealloc_analysis::model::{Device, Dropped, GRAPHS, HOST_DEVICE, Snapshot, StackId};
use cachealloc_analysis::names::{Names, place_key};
use cachealloc_analysis::{Aggregate, DeviceSums, Site, SiteChange, SiteKey, Totals, When};
use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_text::Json;
use cachealloc_text::plain;

use super::{Column, Table, bytes, count, share, time};
use crate::commands::Result;
use crate::failure::Failure;

/// Titles of a list and its columns.
pub(crate) struct Titles {
    pub what: &'static str,
    columns: [&'static str; 4],
}

impl Titles {
    pub(crate) fn of(by: SiteKey, at: When) -> Titles {
        let what = match (by, at) {
            (SiteKey::Peak, _) | (SiteKey::Live, When::Peak) => "held at the peak",
            (SiteKey::Live, When::End) => "held at the end",
            (SiteKey::Live, When::Shortage) => "held when the last allocation failed",
            (SiteKey::Live, _) => "held at that time",
            (SiteKey::Allocated, _) => "allocated in total",
            (SiteKey::Count, _) => "allocations",
            (SiteKey::Temporary, _) => "temporary allocations",
        };
        let columns = match by {
            SiteKey::Live | SiteKey::Peak => ["BYTES", "SHARE", "BLOCKS", "LIFE"],
            SiteKey::Allocated => ["BYTES", "SHARE", "ALLOCATIONS", "LIFE"],
            SiteKey::Count => ["ALLOCATIONS", "SHARE", "BYTES", "LIFE"],
            SiteKey::Temporary => ["TEMPORARY", "SHARE", "ALLOCATIONS", "LIFE"],
        };
        Titles { what, columns }
    }
}

/// `device 0: 1.50 GiB at the peak (...), 20.0 MiB at the end`
pub(crate) fn device_line(file: Option<&str>, sums: &DeviceSums) -> String {
    let file = file.map(|file| format!("{}, ", plain(file))).unwrap_or_default();
    let DeviceSums { device, peak_bytes, end_bytes, entries_count, .. } = *sums;
    let device = match device {
        HOST_DEVICE => "host".to_string(),
        GRAPHS => "graphs".to_string(),
        ordinal => format!("device {ordinal}"),
    };
    let (peak, end) = (bytes(peak_bytes), bytes(end_bytes));
    if entries_count == 0 {
        return format!("{file}{device}: {end}, without history");
    }
    let after = time(sums.peak_us.saturating_mul(1000));
    let (entry, all) = (count(sums.peak.into()), count(entries_count));
    format!(
        "{file}{device}: {peak} at the peak (after {after}, entry {entry} of {all}), {end} at the end"
    )
}

/// Returns remarks about the history that a reader must know.
pub(crate) fn notes(snapshot: &Snapshot, devices: &[DeviceSums]) -> String {
    let mut notes = String::new();
    if let Dropped::Count(dropped @ 1..) = snapshot.settings.dropped {
        let dropped = count(dropped);
        let _ =
            writeln!(notes, "the oldest {dropped} entries were dropped: max_entries was reached");
    }
    let is_left_out = |ordinal| devices.iter().all(|it| it.device != ordinal);
    let (host, graphs) = (held_bytes(&snapshot.host), held_bytes(&snapshot.graphs));
    if host > 0 && is_left_out(HOST_DEVICE) {
        let held = bytes(host);
        let _ = writeln!(
            notes,
            "host: {held} that devices can access; list its holders with --device host"
        );
    }
    if graphs > 0 && is_left_out(GRAPHS) {
        let held = bytes(graphs);
        let _ = writeln!(
            notes,
            "graphs: memory nodes of {held}, which may share memory; list their origin with --device graphs"
        );
    }
    if snapshot.setting("recorded_from_start") == Some("false") {
        notes += "incomplete history: earlier allocations are held, but not counted as allocated\n";
    }
    let disagreements: u64 = devices.iter().map(|device| device.disagreements_count).sum();
    if disagreements > 0 {
        let blocks = match disagreements {
            1 => "1 block".to_string(),
            blocks => format!("{} blocks", count(blocks)),
        };
        let _ = writeln!(notes, "the history does not account for {blocks}: it has gaps");
    }
    notes
}

/// Returns the bytes of the device that the program holds at the end.
fn held_bytes(device: &Device) -> u64 {
    let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
    let held = blocks.filter(|block| block.state.is_active());
    held.fold(0, |sum: u64, block| sum.saturating_add(block.bytes))
}

/// Formats the first `shown` sites, and the rest in one line.
pub(crate) fn table(
    common: &Snapshot,
    names: &Names,
    by: SiteKey,
    sites: &[Site],
    shown: usize,
) -> String {
    let [first, second, third, fourth] = Titles::of(by, When::End).columns;
    let mut table = Table::new([
        Column::number(first),
        Column::number(second),
        Column::number(third),
        Column::number(fourth),
        Column::text("LIBRARY"),
        Column::text("WHERE"),
    ])
    .dropping(&["LIFE", "SHARE", "LIBRARY", "BLOCKS"]);
    let all: u128 = sites.iter().map(|site| u128::from(by.weight(&site.totals))).sum();
    let mut add = |totals: &Totals, library: &str, place: String| {
        let [first, third] = match by {
            SiteKey::Live => [bytes(totals.live_bytes), count(totals.live_count)],
            SiteKey::Peak => [bytes(totals.peak_bytes), count(totals.peak_count)],
            SiteKey::Allocated => [bytes(totals.allocated_bytes), count(totals.allocated_count)],
            SiteKey::Count => [count(totals.allocated_count), bytes(totals.allocated_bytes)],
            SiteKey::Temporary => [count(totals.temporary_count), count(totals.allocated_count)],
        };
        let life = totals.average_life_us().map_or("-".into(), life);
        let part = share(by.weight(totals) as f64 / all as f64);
        table.row([first, part, third, life, library.to_string(), place]);
    };
    for site in &sites[..shown] {
        let library = common.texts.get(site.category);
        add(&site.totals, library, place(common, names, site));
    }
    if shown < sites.len() {
        let mut rest = Totals::default();
        sites[shown..].iter().for_each(|site| rest.add(&site.totals));
        add(&rest, "", format!("({})", others(sites.len() - shown)));
    }
    table.text()
}

/// Formats a lifetime. Most are short, but no clock of a snapshot resolves less than a microsecond.
fn life(us: u64) -> String {
    time(us.saturating_mul(1000).max(1))
}

pub(crate) fn others(sites: usize) -> String {
    match sites {
        1 => "1 other site".into(),
        sites => format!("{} other sites", count(sites as u64)),
    }
}

/// `forward model.py:52 < step train.py:80 < main train.py:101`, or the range `step/forward`.
pub(crate) fn place(common: &Snapshot, names: &Names, site: &Site) -> String {
    match site.range.map(|range| common.texts.get(range)) {
        Some("") => "(in no range)".into(),
        Some(range) => range.to_string(),
        None => names.place(common, site.stack),
    }
}

pub(crate) fn json(
    common: &Snapshot,
    names: &Names,
    aggregate: &Aggregate,
    by: SiteKey,
    sites: &[Site],
) -> Result<String> {
    let mut text = Vec::new();
    let mut json = Json::new(Bounded::new(common, &mut text));
    let written = json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        json.key("by")?.text(match by {
            SiteKey::Live => "live",
            SiteKey::Peak => "peak",
            SiteKey::Allocated => "allocated",
            SiteKey::Count => "count",
            SiteKey::Temporary => "temporary",
        })?;
        devices(json.key("devices")?, aggregate)?;
        json.key("sites")?.list(sites, |json, site| {
            json.line()?;
            json.object(|json| {
                whose(json, common, names, site)?;
                totals(json, &site.totals)?;
                stack(json.key("stack")?, common, site.stack)
            })
        })
    });
    done(written.and_then(|()| json.end()), text)
}

/// Returns the changes from the first aggregate to the second.
pub(crate) fn json_of_changes(
    common: &Snapshot,
    names: &Names,
    [before, after]: [&Aggregate; 2],
    changes: &[SiteChange],
) -> Result<String> {
    let mut text = Vec::new();
    let mut json = Json::new(Bounded::new(common, &mut text));
    let written = json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        devices(json.key("devices_before")?, before)?;
        devices(json.key("devices_after")?, after)?;
        json.key("sites")?.list(changes, |json, change| {
            json.line()?;
            json.object(|json| {
                whose(json, common, names, &change.site)?;
                json.key("growth_bytes")?.number(change.growth_bytes())?;
                json.key("growth_blocks")?.number(change.growth_count())?;
                for (key, totals) in [("before", &change.before), ("after", &change.site.totals)] {
                    json.key(key)?.object(|json| self::totals(json, totals))?;
                }
                stack(json.key("stack")?, common, change.site.stack)
            })
        })
    });
    done(written.and_then(|()| json.end()), text)
}

type Written = std::io::Result<()>;

/// Returns the finished JSON text, or an error if writing it failed. Each site has its whole stack,
/// so a small file may produce much text.
pub(super) fn done(written: Written, text: Vec<u8>) -> Result<String> {
    let why =
        |error| Failure::new(format!("cannot write JSON: {error}")).next("print fewer with -n");
    written.map_err(why)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn devices<W: std::io::Write>(json: &mut Json<W>, aggregate: &Aggregate) -> Written {
    json.list(&aggregate.devices, |json, sums| {
        json.object(|json| {
            let device = match sums.device {
                HOST_DEVICE => -1,
                GRAPHS => -2,
                ordinal => i64::from(ordinal),
            };
            json.key("device")?.number(device)?;
            json.key("entries")?.number(sums.entries_count)?;
            json.key("live_bytes")?.number(sums.at_bytes)?;
            json.key("reserved_bytes")?.number(sums.at_reserved_bytes)?;
            json.key("peak_bytes")?.number(sums.peak_bytes)?;
            json.key("peak_entry")?.number(sums.peak)?;
            json.key("end_bytes")?.number(sums.end_bytes)?;
            json.key("unexplained_blocks")?.number(sums.disagreements_count)
        })
    })
}

pub(super) fn whose<W: std::io::Write>(
    json: &mut Json<W>,
    common: &Snapshot,
    names: &Names,
    site: &Site,
) -> Written {
    json.key("library")?.text(common.texts.get(site.category))?;
    if let Some(range) = site.range {
        json.key("range")?.text(common.texts.get(range))?;
    }
    json.key("where")?.text(&place(common, names, site))
}

pub(super) fn stack<W: std::io::Write>(
    json: &mut Json<W>,
    common: &Snapshot,
    stack: StackId,
) -> Written {
    json.list(common.frames_of(stack), |json, frame| {
        let filename = common.texts.get(frame.filename);
        json.object(|json| {
            json.key("name")?.text(common.texts.get(frame.name))?;
            json.key("filename")?.text(filename)?;
            json.key(place_key(filename))?.number(frame.line)
        })
    })
}

fn totals<W: std::io::Write>(json: &mut Json<W>, totals: &Totals) -> Written {
    for (key, number) in [
        ("live_bytes", totals.live_bytes),
        ("live_blocks", totals.live_count),
        ("peak_bytes", totals.peak_bytes),
        ("peak_blocks", totals.peak_count),
        ("end_bytes", totals.end_bytes),
        ("end_blocks", totals.end_count),
        ("allocated_bytes", totals.allocated_bytes),
        ("allocations", totals.allocated_count),
        ("largest_bytes", totals.largest_bytes),
        ("temporary_bytes", totals.temporary_bytes),
        ("temporary_allocations", totals.temporary_count),
    ] {
        json.key(key)?.number(number)?;
    }
    json.key("average_life_us")?;
    match totals.average_life_us() {
        Some(us) => json.number(us),
        None => json.null(),
    }
}

//! On how small a device a run would complete: as a table, and as JSON.

use std::fmt::Write as _;
use std::io;

use cachealloc_analysis::formats::Bounded;
use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Aggregate, By, Group, Site, When};
use cachealloc_fit::{DeviceFit, Outcome, Room, Smallest, Try, Verdict};
use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_text::Json;

use super::{Column, Table, bytes, count, plural, share, sites};
use crate::commands::Result;

/// What is shown, by the ordinals of devices.
pub(crate) struct Shown<'a> {
    pub snapshot: &'a Snapshot,
    pub fits: &'a [(u32, DeviceFit)],
    /// Call sites, where it does not fit.
    pub sites_count: usize,
}

pub(crate) fn text(shown: &Shown) -> String {
    let mut text = String::new();
    for (ordinal, fit) in shown.fits {
        let requests = &fit.requests;
        let (all, held) = (count(requests.count() as u64), bytes(requests.peak_bytes()));
        let recorded = bytes(fit.recorded_reserved_bytes);
        let _ = writeln!(
            text,
            "GPU {ordinal}: {all} allocations, {held} at the peak; the recorded run reserved {recorded}"
        );
        if let Some(verdict) = verdict_text(fit) {
            let _ = writeln!(text, "{verdict}");
        }
        if let Some(holders) = holders(shown, *ordinal, fit) {
            let number = shown.sites_count.min(holders.sites.len());
            let Holders { common, names, sites } = &holders;
            let _ = write!(text, "\n{}", sites::table(common, names, By::Live, sites, number));
        }
        let _ = write!(text, "\n{}\n", table(fit));
        for more in fit.tries.iter().filter_map(also) {
            let _ = writeln!(text, "{more}");
        }
        fit.unknowns.iter().for_each(|unknown| _ = writeln!(text, "not known: {unknown}"));
    }
    text
}

fn verdict_text(fit: &DeviceFit) -> Option<String> {
    let room = match fit.room? {
        Room::Limit(most) => format!("a limit of {}", bytes(most)),
        Room::Device(most) => bytes(most),
        Room::Plenty => return None,
    };
    Some(match fit.verdict? {
        Verdict::Fits(index) => {
            format!("fits within {room} with {}", name(&fit.tries[index]))
        }
        Verdict::FitsWithNone => {
            let sets = plural(fit.tries.len() as u64, "set");
            format!(
                "does not fit within {room} ({sets} of options tried); these call sites hold most"
            )
        }
        Verdict::CannotFit => format!(
            "cannot fit within {room}: {} are needed at once; these call sites hold most",
            bytes(fit.requests.peak_bytes())
        ),
    })
}

fn name(tried: &Try) -> &str {
    if tried.set.text.is_empty() { "the default options" } else { &tried.set.text }
}

fn table(fit: &DeviceFit) -> String {
    let mut table = Table::new([
        Column::number("LEAST LIMIT"),
        Column::number("LEAST DEVICE"),
        Column::number("RESERVED"),
        Column::number("FRAGMENTED"),
        Column::number("DRIVER CALLS"),
        Column::text("OPTIONS"),
    ]);
    for tried in &fit.tries {
        let least = |size: &Option<Smallest>| {
            size.as_ref().map_or("-".to_string(), |size| mebibytes(size.bytes))
        };
        let Outcome { peak_reserved_bytes, driver_calls, .. } = tried.outcome;
        let [reserved, fragmented, calls] = match tried.outcome.completes() {
            true => [
                bytes(peak_reserved_bytes),
                share(tried.outcome.fragmentation()),
                count(driver_calls),
            ],
            false => ["fails".into(), "-".into(), "-".into()],
        };
        let (limit, device) = (least(&tried.limit), least(&tried.device));
        table.row([limit, device, reserved, fragmented, calls, name(tried).to_string()]);
    }
    table.text()
}

/// As a limit is set, and not rounded: the next smaller one may not do.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", count(bytes >> 20))
}

/// Where more memory does not help.
fn also(tried: &Try) -> Option<String> {
    let sizes = |size: &Option<Smallest>| {
        let sizes = size.iter().flat_map(|size| &size.also_bytes);
        sizes.map(|size| mebibytes(*size)).collect::<Vec<_>>().join(", ")
    };
    let (limits, devices) = (sizes(&tried.limit), sizes(&tried.device));
    let what = match (limits.is_empty(), devices.is_empty()) {
        (true, true) => return None,
        (false, true) => format!("a limit of {limits}"),
        (true, false) => format!("a device of {devices}"),
        (false, false) => format!("a limit of {limits} and a device of {devices}"),
    };
    Some(format!("{}: completes with {what}, too, but not with all sizes above", name(tried)))
}

/// The call sites that hold most when most is needed.
struct Holders {
    common: Snapshot,
    names: Names,
    sites: Vec<Site>,
}

/// None: it fits, or the question was not asked.
fn holders(shown: &Shown, ordinal: u32, fit: &DeviceFit) -> Option<Holders> {
    fit.verdict.filter(|verdict| !matches!(verdict, Verdict::Fits(_)))?;
    let mut common = Snapshot::default();
    let mut aggregate = Aggregate::new(Group::Stack);
    let then = When::Entry(fit.requests.peak_moment().into());
    aggregate.add(&mut common, shown.snapshot, then, Some(ordinal));
    let names = Names::of(&common);
    let weight = |site: &Site| By::Live.weight(&site.totals);
    let mut sites = aggregate.grouped(&common, &names, Group::Stack, |it| By::Live.weight(it));
    sites.retain(|site| weight(site) > 0);
    sites.sort_by_key(|site| std::cmp::Reverse(weight(site)));
    Some(Holders { common, names, sites })
}

pub(crate) fn json(shown: &Shown) -> Result<String> {
    let mut text = Vec::new();
    let mut json = Json::new(Bounded::new(shown.snapshot, &mut text));
    let written = json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        json.key("devices")?.list(shown.fits, |json, (ordinal, fit)| {
            json.line()?;
            json.object(|json| of_device(json, shown, *ordinal, fit))
        })
    });
    sites::done(written.and_then(|()| json.end()), text)
}

fn of_device<W: io::Write>(
    json: &mut Json<W>,
    shown: &Shown,
    ordinal: u32,
    fit: &DeviceFit,
) -> io::Result<()> {
    json.key("device")?.number(ordinal)?;
    json.key("allocations")?.number(fit.requests.count())?;
    json.key("failed_requests")?.number(fit.requests.failed_count())?;
    json.key("peak_bytes")?.number(fit.requests.peak_bytes())?;
    json.key("peak_entry")?.number(fit.requests.peak_moment())?;
    json.key("recorded_reserved_bytes")?.number(fit.recorded_reserved_bytes)?;
    json.key("room_bytes")?;
    number_or_null(json, fit.room.and_then(Room::bytes))?;
    json.key("room_is_limit")?.boolean(fit.room.is_some_and(Room::is_limit))?;
    json.key("verdict")?;
    match fit.verdict {
        None => json.null()?,
        Some(Verdict::Fits(_)) => json.text("fits")?,
        Some(Verdict::FitsWithNone) => json.text("fits_with_none")?,
        Some(Verdict::CannotFit) => json.text("cannot_fit")?,
    }
    json.key("fits_with")?;
    match fit.verdict {
        Some(Verdict::Fits(index)) => json.text(&fit.tries[index].set.text)?,
        _ => json.null()?,
    }
    json.key("sets")?.list(&fit.tries, |json, tried| {
        json.line()?;
        json.object(|json| of_try(json, tried))
    })?;
    let holders = holders(shown, ordinal, fit);
    let of =
        holders.as_ref().map_or(&[][..], |it| &it.sites[..it.sites.len().min(shown.sites_count)]);
    json.key("sites")?.list(of, |json, site| {
        let Some(Holders { common, names, .. }) = &holders else { return Ok(()) };
        json.line()?;
        json.object(|json| {
            sites::whose(json, common, names, site)?;
            json.key("live_bytes")?.number(site.totals.live_bytes)?;
            json.key("live_blocks")?.number(site.totals.live_count)?;
            sites::stack(json.key("stack")?, common, site.stack)
        })
    })?;
    json.key("unknowns")?.list(&fit.unknowns, |json, unknown| json.text(unknown))
}

/// The best first.
fn of_try<W: io::Write>(json: &mut Json<W>, tried: &Try) -> io::Result<()> {
    let Outcome { peak_reserved_bytes, driver_calls, .. } = tried.outcome;
    let completes = tried.outcome.completes();
    json.key("options")?.text(&tried.set.text)?;
    json.key("completes")?.boolean(completes)?;
    json.key("peak_reserved_bytes")?;
    number_or_null(json, completes.then_some(peak_reserved_bytes))?;
    json.key("fragmentation")?;
    number_or_null(json, completes.then(|| tried.outcome.fragmentation()))?;
    json.key("driver_calls")?;
    number_or_null(json, completes.then_some(driver_calls))?;
    for (key, smallest) in [("least_limit", &tried.limit), ("least_device", &tried.device)] {
        json.key(key)?;
        match smallest {
            None => json.null()?,
            Some(smallest) => json.object(|json| {
                json.key("bytes")?.number(smallest.bytes)?;
                json.key("larger_sizes_tried")?.number(smallest.larger_count)?;
                let also = &smallest.also_bytes;
                json.key("also_bytes")?.list(also, |json, bytes| json.number(bytes))
            })?,
        }
    }
    Ok(())
}

fn number_or_null<W: io::Write>(
    json: &mut Json<W>,
    number: Option<impl std::fmt::Display>,
) -> io::Result<()> {
    match number {
        Some(number) => json.number(number),
        None => json.null(),
    }
}

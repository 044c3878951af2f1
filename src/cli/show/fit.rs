//! Prints the smallest device on which a run would complete: as a table, and as JSON.

use std::fmt::Write as _;
use std::io;

use cachealloc_analysis::SiteKey;
use cachealloc_analysis::formats::Bounded;
use cachealloc_analysis::model::Snapshot;
use cachealloc_fit::{Capacity, DeviceFit, Holders, Outcome, Trial, Verdict};
use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_text::Json;

use super::{Column, Table, sites};
use crate::commands::Result;

/// Results to show, by device ordinal.
pub(crate) struct Shown<'a> {
    pub snapshot: &'a Snapshot,
    pub fits: &'a [(u32, DeviceFit)],
    /// Number of call sites listed if the run does not fit.
    pub sites_count: usize,
}

pub(crate) fn text(shown: &Shown) -> String {
    let mut text = String::new();
    for (ordinal, fit) in shown.fits {
        let _ = writeln!(text, "{}", fit.title(*ordinal));
        let holders = Holders::of(shown.snapshot, *ordinal, fit);
        if let Some(verdict) = fit.verdict_text() {
            let whose = holders.as_ref().map_or("", |_| "; these call sites hold most");
            let _ = writeln!(text, "{verdict}{whose}");
        }
        if let Some(Holders { common, names, sites }) = &holders {
            let number = shown.sites_count.min(sites.len());
            let _ = write!(text, "\n{}", sites::table(common, names, SiteKey::Live, sites, number));
        }
        let mut table = Table::new([
            Column::number("LEAST LIMIT"),
            Column::number("LEAST DEVICE"),
            Column::number("COMPLETES"),
            Column::number("RESERVED"),
            Column::number("FRAGMENTED"),
            Column::number("DRIVER CALLS"),
            Column::text("OPTIONS"),
        ])
        .dropping(&["DRIVER CALLS", "FRAGMENTED", "RESERVED", "LEAST DEVICE"]);
        fit.rows().for_each(|row| table.row(row));
        let _ = write!(text, "\n{}\n", table.text());
        fit.notes().iter().for_each(|note| _ = writeln!(text, "{note}"));
    }
    text
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
    number_or_null(json, fit.capacity.and_then(Capacity::bytes))?;
    json.key("room_is_limit")?.boolean(fit.capacity.is_some_and(Capacity::is_limit))?;
    json.key("verdict")?;
    match fit.verdict {
        None => json.null()?,
        Some(Verdict::Fits(_)) => json.text("fits")?,
        Some(Verdict::FitsWithNone) => json.text("fits_with_none")?,
        Some(Verdict::CannotFit) => json.text("cannot_fit")?,
    }
    json.key("fits_with")?;
    match fit.verdict {
        Some(Verdict::Fits(index)) => json.text(&fit.trials[index].set.text)?,
        _ => json.null()?,
    }
    json.key("sets")?.list(&fit.trials, |json, trial| {
        json.line()?;
        json.object(|json| of_try(json, trial))
    })?;
    let holders = Holders::of(shown.snapshot, ordinal, fit);
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

/// Writes one attempt; the best come first.
fn of_try<W: io::Write>(json: &mut Json<W>, trial: &Trial) -> io::Result<()> {
    let Outcome { peak_reserved_bytes, driver_calls, .. } = trial.outcome;
    let completes = trial.outcome.completes();
    json.key("options")?.text(&trial.set.text)?;
    json.key("completes")?.boolean(completes)?;
    json.key("peak_reserved_bytes")?;
    number_or_null(json, completes.then_some(peak_reserved_bytes))?;
    json.key("fragmentation")?;
    number_or_null(json, completes.then(|| trial.outcome.fragmentation()))?;
    json.key("driver_calls")?;
    number_or_null(json, completes.then_some(driver_calls))?;
    for (key, smallest) in [("least_limit", &trial.limit), ("least_device", &trial.device)] {
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

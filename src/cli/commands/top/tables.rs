//! The tables: all processes, or one with its libraries, call sites and waits.

use std::cmp::Reverse;

use cachealloc_analysis::names;

use super::Sample;
use super::rates::Rates;
use crate::live::{CallSite, Statistics};
use crate::processes::Process;
use crate::show::{self, Column, Table};

/// Call sites that are shown by default.
const SITES_DEFAULT: usize = 20;
/// Frames of the runtime do not tell the call site, nor do those of Python's own machine code.
const RUNTIMES: [&str; 3] = ["libcudart", "libcuda.so", "libcachealloc"];
/// So many frames of Python: several functions may go through one that allocates.
const PYTHON_FRAMES: usize = 2;
const NOT_KNOWN: &str = "(not recorded)";

/// The largest first.
pub(super) fn all(samples: &[Sample], silent: &[Process], rates: &Rates, rows: usize) -> String {
    if samples.is_empty() && silent.is_empty() {
        return "nothing of this user runs under cachealloc and uses CUDA; start something with: \
                cachealloc run -- ./app\n"
            .to_string();
    }
    let mut table = Table::new([
        Column::number("PID"),
        Column::number("GPU"),
        Column::number("ALLOCATED"),
        Column::number("PEAK"),
        Column::number("RESERVED"),
        Column::number("BLOCKS"),
        Column::number("ALLOC/S"),
        Column::number("HITS"),
        Column::number("WAITS/S"),
        Column::text("COMMAND"),
    ]);
    let devices = |sample| devices(sample).into_iter().map(move |device| (sample, device));
    let mut all: Vec<(&Sample, i32)> = samples.iter().flat_map(devices).collect();
    let bytes = |sample: &Sample, device| sample.statistics.of_device(device, ALLOCATED);
    all.sort_by_key(|(sample, device)| {
        (Reverse(bytes(sample, *device)), sample.process.0, *device)
    });
    for (sample, device) in all.into_iter().take(rows) {
        let number = |key| sample.statistics.of_device(device, key);
        table.row([
            sample.process.0.to_string(),
            device.to_string(),
            show::bytes(number(ALLOCATED)),
            show::bytes(number("allocated_bytes.all.peak")),
            show::bytes(number("reserved_bytes.all.current")),
            show::count(number("allocation.all.current")),
            rates.allocations(sample),
            sample.statistics.hit_rate().map_or("-".to_string(), show::share),
            rates.waits(sample),
            sample.command.clone(),
        ]);
    }
    let dashes = || std::array::from_fn(|_| "-".to_string());
    for process in silent.iter().take(rows.saturating_sub(samples.len())) {
        let mut row: [String; 10] = dashes();
        row[0] = process.0.to_string();
        let why = if process.is_stopped() { "stopped" } else { "does not answer" };
        row[9] = format!("{} ({why})", process.command());
        table.row(row);
    }
    table.text()
}

const ALLOCATED: &str = "allocated_bytes.all.current";

pub(super) fn one(sample: &Sample, rates: &Rates, rows: Option<usize>) -> String {
    let mut text = all(std::slice::from_ref(sample), &[], rates, usize::MAX);
    text += "\n";
    text += &waits(&sample.statistics);
    text += &show::holders(&sample.statistics);
    if let Some(sites) = &sample.statistics.call_sites {
        text += "\n";
        text += &call_sites(sample, sites, rates, rows.unwrap_or(SITES_DEFAULT));
    }
    text
}

/// Nothing, where the program never waited.
fn waits(statistics: &Statistics) -> String {
    let mut waits: Vec<_> = statistics.waits.iter().filter(|(_, wait)| wait.count != 0).collect();
    if waits.is_empty() {
        return String::new();
    }
    waits.sort_by_key(|(_, wait)| Reverse(wait.nanoseconds));
    let columns = [Column::number("WAITS"), Column::number("TIME"), Column::text("REASON")];
    let mut table = Table::new(columns);
    for (reason, wait) in waits {
        let time = wait.nanoseconds.map_or("-".to_string(), show::time);
        table.row([show::count(wait.count), time, reason.clone()]);
    }
    table.text() + "\n"
}

fn call_sites(sample: &Sample, sites: &[CallSite], rates: &Rates, rows: usize) -> String {
    let mut table = Table::new([
        Column::number("BYTES"),
        Column::number("AT THE PEAK"),
        Column::number("BLOCKS"),
        Column::number("ALLOC/S"),
        Column::number("GPU"),
        Column::text("LIBRARY"),
        Column::text("CALL SITE"),
    ]);
    let mut sites: Vec<&CallSite> = sites.iter().collect();
    sites.sort_by_key(|site| Reverse((site.bytes, site.bytes_at_peak, site.allocations)));
    for site in sites.into_iter().take(rows) {
        table.row([
            show::bytes(site.bytes),
            show::bytes(site.bytes_at_peak),
            show::count(site.blocks),
            rates.of_site(sample, site),
            site.device.to_string(),
            site.library.clone(),
            place(site),
        ]);
    }
    table.text()
}

/// The innermost frame that is not the runtime's, and the innermost ones of Python.
fn place(site: &CallSite) -> String {
    let is_runtime = |frame: &&String| {
        let (name, place) = frame.rsplit_once(' ').unwrap_or((frame, ""));
        let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
        RUNTIMES.iter().any(|name| frame.contains(name)) || names::is_interpreter(name, file)
    };
    let is_python = |frame: &&String| frame.contains(".py:");
    let first = site.frames.iter().find(|frame| !is_runtime(frame)).or(site.frames.first());
    let Some(first) = first else { return NOT_KNOWN.to_string() };
    let python = site.frames.iter().filter(|frame| is_python(frame) && *frame != first);
    let frames = std::iter::once(first).chain(python.take(PYTHON_FRAMES));
    frames.map(|frame| brief(frame)).collect::<Vec<_>>().join(" < ")
}

/// With the last part of the file's path.
fn brief(frame: &str) -> String {
    match frame.rsplit_once(' ') {
        Some((name, file)) => format!("{name} {}", file.rsplit('/').next().unwrap_or(file)),
        None => frame.to_string(),
    }
}

/// Of a process that has met no device yet: none.
fn devices(sample: &Sample) -> Vec<i32> {
    sample.statistics.devices.keys().copied().collect()
}

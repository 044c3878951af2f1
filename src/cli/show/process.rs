//! Prints one process: its memory, driver calls, waits, and memory by library and by call site.

use std::cmp::Reverse;
use std::fmt::Write as _;

use cachealloc_text::{cut, plain};

use super::{Column, Table, bytes, count, places, share, steady_ended_by, time};
use crate::live::{CallSite, Library, Statistics, Timed};

/// Numbers shown for a device: a name, and PyTorch's key.
const MEMORY: [(&str, &str); 4] = [
    ("requested", "requested_bytes"),
    ("allocated", "allocated_bytes"),
    ("reserved", "reserved_bytes"),
    ("inactive split", "inactive_split_bytes"),
];
/// Column at which values begin.
const VALUE_COLUMN: usize = 44;
/// Maximum number of call sites; `top` shows more.
const SITES_MAX: usize = 20;

/// Formats one process. `process` is the number it was requested by; in a container it has another
/// one.
pub(crate) fn process(statistics: &Statistics, process: u32, command: &str) -> String {
    let Statistics { version, free_mode, .. } = statistics;
    let mut text = format!("process {process}: {command}\n");
    let _ = writeln!(text, "cachealloc {}, free_mode {}", word(version), word(free_mode));
    for device in statistics.devices.keys() {
        memory(&mut text, statistics, *device);
    }
    text += "\n";
    line(&mut text, "allocations", &count(statistics.allocations_served));
    line(&mut text, "of these without the driver", &count(statistics.hits));
    if let Some(rate) = statistics.hit_rate() {
        line(&mut text, "hit rate", &share(rate));
    }
    if let Some(seconds) = statistics.steady_seconds {
        line(&mut text, "since one reached the driver", &time((seconds * 1e9) as u64));
    }
    if let Some(place) = steady_ended_by(statistics) {
        line(&mut text, "last steady state ended by", &place);
    }
    line(&mut text, "barriers", &count(statistics.barriers));
    for (name, call) in &statistics.driver_calls {
        timed(&mut text, &format!("driver: {name}"), call);
    }
    for (name, wait) in statistics.waits.iter().filter(|(_, wait)| wait.count != 0) {
        timed(&mut text, &format!("waits, {}", words(name)), wait);
    }
    for (name, number) in statistics.counts.iter().filter(|(_, number)| **number != 0) {
        line(&mut text, &words(name), &count(*number));
    }
    text += "\n";
    text += &holders(statistics, &|device: i32| device.to_string());
    text + &sites(statistics)
}

/// Lists the call sites that hold the most memory; empty if none are known.
fn sites(statistics: &Statistics) -> String {
    let mut sites: Vec<&CallSite> = statistics.call_sites.iter().flatten().collect();
    if sites.is_empty() {
        return String::new();
    }
    sites.sort_by_key(|site| Reverse((site.bytes, site.bytes_at_peak, site.allocations)));
    let mut table = Table::new([
        Column::number("BYTES"),
        Column::number("AT THE PEAK"),
        Column::number("BLOCKS"),
        Column::number("GPU"),
        Column::text("LIBRARY"),
        Column::text("CALL SITE"),
    ])
    .dropping(&["AT THE PEAK", "GPU", "BLOCKS", "LIBRARY"]);
    for (site, place) in sites.iter().zip(places(&sites)).take(SITES_MAX) {
        let CallSite { device, library, bytes: now, bytes_at_peak, blocks, .. } = site;
        let [now, peak] = [*now, *bytes_at_peak].map(bytes);
        table.row([now, peak, count(*blocks), device.to_string(), library.clone(), place]);
    }
    format!("\n{}", table.text())
}

/// Lists memory by library. `name` returns the name of a device.
pub(crate) fn holders(statistics: &Statistics, name: &dyn Fn(i32) -> String) -> String {
    let Some(libraries) = &statistics.libraries else {
        return "memory by library: not recorded; start the program with: cachealloc run --record=state\n"
            .to_string();
    };
    let mut table = Table::new([
        Column::text("LIBRARY"),
        Column::number("GPU"),
        Column::number("BYTES"),
        Column::number("AT THE PEAK"),
    ]);
    for Library { device, library, bytes: now, bytes_at_peak } in libraries {
        table.row([library.clone(), name(*device), bytes(*now), bytes(*bytes_at_peak)]);
    }
    table.text()
}

fn memory(text: &mut String, statistics: &Statistics, device: i32) {
    let number = |key: &str| statistics.of_device(device, key);
    let title = format!("device {device}");
    let _ = writeln!(text, "\n{title:<16} {:>10} {:>12}", "now", "at the peak");
    for (name, key) in MEMORY {
        let now = bytes(number(&format!("{key}.all.current")));
        let peak = bytes(number(&format!("{key}.all.peak")));
        let _ = writeln!(text, "  {name:<14} {now:>10} {peak:>12}");
    }
    for (name, key) in [("blocks", "allocation"), ("segments", "segment")] {
        let now = count(number(&format!("{key}.all.current")));
        let peak = count(number(&format!("{key}.all.peak")));
        let _ = writeln!(text, "  {name:<14} {now:>10} {peak:>12}");
    }
    match number("num_ooms") {
        0 => {}
        refused => _ = writeln!(text, "  {:<14} {:>10}", "out of memory", count(refused)),
    }
}

fn timed(text: &mut String, name: &str, what: &Timed) {
    let times = count(what.count);
    match what.nanoseconds {
        None => line(text, name, &times),
        Some(nanoseconds) => line(text, name, &format!("{times} ({})", time(nanoseconds))),
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{:<VALUE_COLUMN$}{value}", word(name));
}

/// Formats a key for people.
pub(crate) fn words(key: &str) -> String {
    key.replace('_', " ")
}

/// Formats a name sent by the process. It is a short word unless the process is not running this
/// library.
fn word(text: &str) -> String {
    plain(&cut(text, WORD_LETTERS_MAX)).into_owned()
}

const WORD_LETTERS_MAX: usize = 100;

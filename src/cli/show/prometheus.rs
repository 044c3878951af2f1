//! Exports statistics for Prometheus: in its text format 0.0.4, which node_exporter's textfile
//! collector reads, or as OpenMetrics text. They differ in the name for which a counter's type is
//! declared: with or without `_total`. The number of series is bounded whatever a program does: of
//! libraries and call sites only the largest are listed, and the rest are summed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use cachealloc_text::{cut, plain};

use super::{places, steady_ended_by};
use crate::live::{CallSite, Library, Statistics, Timed};

/// Maximum number of series per process; the rest are summed as `(other)`.
const LIBRARIES_MAX: usize = 20;
const SITES_MAX: usize = 10;
const LETTERS_MAX: usize = 200;
const OTHER: &str = "(other)";

/// One process, with its statistics and its command.
pub(crate) struct Scraped {
    pub process: u32,
    pub command: String,
    pub statistics: Statistics,
}

/// A number with its labels.
type Sample = (String, f64);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// Text format 0.0.4.
    Text,
    OpenMetrics,
}

/// The text so far.
struct Out {
    text: String,
    exposition: Exposition,
}

pub(crate) fn prometheus(all: &[Scraped], exposition: Exposition) -> String {
    let mut out = Out { text: String::new(), exposition };
    let info = |it: &Scraped| {
        let Statistics { version, free_mode, .. } = &it.statistics;
        let more = labels(&[("command", &it.command), ("version", version), ("mode", free_mode)]);
        vec![(it.of_process(&more), 1.0)]
    };
    gauge(&mut out, "process_info", "A process under the library.", all, info);
    for (name, key, help) in [
        ("allocated_bytes", "allocated_bytes.all.current", "Memory that the program holds."),
        ("allocated_peak_bytes", "allocated_bytes.all.peak", "Its maximum."),
        (
            "reserved_bytes",
            "reserved_bytes.all.current",
            "Memory that the cache holds on the device.",
        ),
        ("reserved_peak_bytes", "reserved_bytes.all.peak", "Its maximum."),
        ("blocks", "allocation.all.current", "Blocks that the program holds."),
    ] {
        gauge(&mut out, name, help, all, |it| it.devices(key));
    }
    let refused = |it: &Scraped| it.devices("num_ooms");
    counter(&mut out, "out_of_memory", "Requests that failed.", all, refused);
    let counts: [(&str, &str, Count); 3] = [
        ("allocations", "Requests that were served.", |it| it.allocations_served),
        ("hits", "Requests that were served without the driver.", |it| it.hits),
        ("barriers", "Barriers of frees.", |it| it.barriers),
    ];
    for (name, help, number) in counts {
        let one = |it: &Scraped| vec![(it.of_process(""), number(&it.statistics) as f64)];
        counter(&mut out, name, help, all, one);
    }
    let steady = |it: &Scraped| it.steady(it.statistics.steady_seconds, "");
    let help = "Time since an allocation last reached the driver.";
    gauge(&mut out, "steady_seconds", help, all, steady);
    let ended = |it: &Scraped| {
        let site = steady_ended_by(&it.statistics);
        let labels = |site: &String| labels(&[("site", site)]);
        it.steady(site.as_ref().map(|_| 1.0), &site.as_ref().map(labels).unwrap_or_default())
    };
    let help = "The call site that ended the last second or longer without such an allocation.";
    gauge(&mut out, "steady_ended_by", help, all, ended);
    let timed: [(&str, &str, &str, TimedBy); 2] = [
        ("driver_call", "call", "Driver calls of the cache", |it| &it.driver_calls),
        ("wait", "reason", "Waits that the library inserted", |it| &it.waits),
    ];
    for (name, label, help, timed) in timed {
        let some = |it: &Scraped, number: fn(&Timed) -> f64| -> Vec<Sample> {
            let all = timed(&it.statistics).iter().filter(|(_, timed)| timed.count > 0);
            let labels = |key: &String| it.of_process(&labels(&[(label, key)]));
            all.take(LIBRARIES_MAX).map(|(key, timed)| (labels(key), number(timed))).collect()
        };
        let count = |it: &Scraped| some(it, |timed| timed.count as f64);
        counter(&mut out, &format!("{name}s"), &format!("{help}."), all, count);
        let seconds = |it: &Scraped| some(it, |timed| timed.nanoseconds.unwrap_or(0) as f64 / 1e9);
        let help = format!("{help}, their time.");
        counter(&mut out, &format!("{name}_seconds"), &help, all, seconds);
    }
    let libraries = |it: &Scraped| it.libraries(|library| library.bytes);
    gauge(&mut out, "library_bytes", "Memory by library, as requested.", all, libraries);
    let libraries = |it: &Scraped| it.libraries(|library| library.bytes_at_peak);
    gauge(
        &mut out,
        "library_at_peak_bytes",
        "Memory by library at the peak of the process.",
        all,
        libraries,
    );
    let sites = |it: &Scraped| it.call_sites(|site| site.bytes);
    gauge(&mut out, "call_site_bytes", "Memory of the call sites that hold most.", all, sites);
    let sites = |it: &Scraped| it.call_sites(|site| site.allocations);
    let help = "Allocations of the call sites that hold most.";
    gauge(&mut out, "call_site_allocations", help, all, sites);
    match exposition {
        Exposition::Text => out.text,
        Exposition::OpenMetrics => out.text + "# EOF\n",
    }
}

type Count = fn(&Statistics) -> u64;
type TimedBy = fn(&Statistics) -> &BTreeMap<String, Timed>;

fn gauge(
    out: &mut Out,
    name: &str,
    help: &str,
    all: &[Scraped],
    samples: impl Fn(&Scraped) -> Vec<Sample>,
) {
    family(out, name, "gauge", help, all, samples);
}

fn counter(
    out: &mut Out,
    name: &str,
    help: &str,
    all: &[Scraped],
    samples: impl Fn(&Scraped) -> Vec<Sample>,
) {
    family(out, name, "counter", help, all, samples);
}

/// Writes all samples of a name together, whichever process they belong to.
fn family(
    out: &mut Out,
    name: &str,
    kind: &str,
    help: &str,
    all: &[Scraped],
    samples: impl Fn(&Scraped) -> Vec<Sample>,
) {
    let is_open = out.exposition == Exposition::OpenMetrics;
    let out = &mut out.text;
    let name = format!("cachealloc_{name}");
    let total = if kind == "counter" { "_total" } else { "" };
    let typed = if is_open { "" } else { total };
    let _ = writeln!(out, "# TYPE {name}{typed} {kind}");
    let unit = ["bytes", "seconds"].into_iter().find(|unit| name.ends_with(unit));
    if let Some(unit) = unit.filter(|_| is_open) {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name}{typed} {help}");
    for (labels, value) in all.iter().flat_map(|it| added_up(samples(it))) {
        let _ = writeln!(out, "{name}{total}{{{labels}}} {value}");
    }
}

impl Scraped {
    fn of_process(&self, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { "," };
        format!("{}{comma}{more}", labels(&[("pid", &self.process)]))
    }

    fn steady(&self, value: Option<f64>, more: &str) -> Vec<Sample> {
        value.map(|value| (self.of_process(more), value.max(0.0))).into_iter().collect()
    }

    fn of_device(&self, device: i32, more: &[(&str, &dyn Display)]) -> String {
        let uuid = self.statistics.gpu(device).and_then(|gpu| gpu.uuid.as_deref()).unwrap_or("");
        let own: [(&str, &dyn Display); 2] = [("device", &device), ("uuid", &uuid)];
        self.of_process(&labels(&[&own[..], more].concat()))
    }

    fn devices(&self, key: &str) -> Vec<Sample> {
        let devices = self.statistics.devices.keys();
        let number = |device: i32| self.statistics.of_device(device, key) as f64;
        devices.map(|&device| (self.of_device(device, &[]), number(device))).collect()
    }

    fn libraries(&self, number: fn(&Library) -> u64) -> Vec<Sample> {
        let mut all: Vec<&Library> = self.statistics.libraries.iter().flatten().collect();
        all.sort_by_key(|library| Reverse(library.bytes.max(library.bytes_at_peak)));
        let named = all.iter().enumerate().map(|(index, library)| {
            let name = if index < LIBRARIES_MAX { library.library.as_str() } else { OTHER };
            (self.of_device(library.device, &[("library", &name)]), number(library) as f64)
        });
        named.collect()
    }

    fn call_sites(&self, number: fn(&CallSite) -> u64) -> Vec<Sample> {
        let mut all: Vec<&CallSite> = self.statistics.call_sites.iter().flatten().collect();
        all.sort_by_key(|site| Reverse((site.bytes, site.bytes_at_peak, site.allocations)));
        let named = all.iter().zip(places(&all)).enumerate().map(|(index, (site, place))| {
            let (library, place) = match index < SITES_MAX {
                true => (site.library.as_str(), place.as_str()),
                false => (OTHER, OTHER),
            };
            let labels = self.of_device(site.device, &[("library", &library), ("site", &place)]);
            (labels, number(site) as f64)
        });
        named.collect()
    }
}

/// Sums samples with equal labels: long names are cut, and several may be cut to the same text.
fn added_up(samples: Vec<Sample>) -> Vec<Sample> {
    let mut sums: Vec<Sample> = Vec::new();
    for (labels, value) in samples {
        match sums.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, sum)) => *sum += value,
            None => sums.push((labels, value)),
        }
    }
    sums
}

/// Formats and escapes labels, whose values are untrusted.
fn labels(all: &[(&str, &dyn Display)]) -> String {
    let one = |(name, value): &(&str, &dyn Display)| {
        let value = value.to_string();
        let value = plain(&cut(&value, LETTERS_MAX)).replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    };
    all.iter().map(one).collect::<Vec<_>>().join(",")
}

//! Lines of the tables of processes and call sites: for each value a text and a sort key.

use std::cmp::{Ordering, Reverse};

use super::rates::Rates;
use super::samples::{Look, Sample};
use crate::live::{CallSite, Frame};
use crate::processes::Process;
use crate::show::{self, Column};

pub(super) const PROCESS_COLUMNS: usize = 11;
pub(super) const SITE_COLUMNS: usize = 7;

pub(super) const PROCESSES: [Column; PROCESS_COLUMNS] = [
    Column::number("PID"),
    Column::number("GPU"),
    Column::number("ALLOCATED"),
    Column::number("PEAK"),
    Column::number("RESERVED"),
    Column::number("BLOCKS"),
    Column::number("ALLOC/S"),
    Column::number("HITS"),
    Column::number("WAITS/S"),
    Column::text("USER").where_any(),
    Column::text("COMMAND"),
];

pub(super) const SITES: [Column; SITE_COLUMNS] = [
    Column::number("BYTES"),
    Column::number("AT THE PEAK"),
    Column::number("BLOCKS"),
    Column::number("ALLOC/S"),
    Column::number("GPU"),
    Column::text("LIBRARY"),
    Column::text("CALL SITE"),
];

/// Memory over time, which only the screen shows.
pub(super) const OVER_TIME: &str = "OVER TIME";

/// Columns in the order in which they are dropped on a narrow terminal.
pub(super) const PROCESSES_GO: [&str; 10] = [
    "WAITS/S", "HITS", "BLOCKS", OVER_TIME, "PEAK", "ALLOC/S", "USER", "RESERVED", "GPU", "COMMAND",
];
pub(super) const SITES_GO: [&str; 6] =
    ["GPU", "AT THE PEAK", "ALLOC/S", "LIBRARY", "BLOCKS", "CALL SITE"];

/// A line, and the subject that identifies it from one look to the next.
#[derive(Clone, Debug)]
pub(super) struct Line<const N: usize> {
    pub about: About,
    pub values: [Value; N],
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum About {
    /// A process on a device, or on no device if it does not respond.
    Process(Process, Option<i32>),
    Site(i32, Vec<Frame>),
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub text: String,
    pub key: Key,
}

#[derive(Clone, Debug)]
pub(super) enum Key {
    Unknown,
    /// Sorted with the largest first.
    Amount(f64),
    /// Sorted with the smallest first.
    Id(u64),
    Text(String),
}

impl Key {
    /// Compares two keys of a sorted table. Unknown values come last in both directions.
    pub(super) fn compare(&self, other: &Key, reversed: bool) -> Ordering {
        let order = match (self, other) {
            (Key::Unknown, Key::Unknown) => return Ordering::Equal,
            (Key::Unknown, _) => return Ordering::Greater,
            (_, Key::Unknown) => return Ordering::Less,
            (Key::Amount(own), Key::Amount(other)) => other.total_cmp(own),
            (Key::Id(own), Key::Id(other)) => own.cmp(other),
            (Key::Text(own), Key::Text(other)) => own.cmp(other),
            // Numbers come before names.
            (Key::Text(_), _) => Ordering::Greater,
            (_, _) => Ordering::Less,
        };
        if reversed { order.reverse() } else { order }
    }
}

impl Value {
    fn unknown() -> Value {
        Value { text: "-".to_string(), key: Key::Unknown }
    }

    fn amount(amount: f64, text: String) -> Value {
        Value { text, key: Key::Amount(amount) }
    }

    fn text(text: String) -> Value {
        Value { key: Key::Text(text.to_lowercase()), text }
    }

    fn bytes(bytes: u64) -> Value {
        Value::amount(bytes as f64, show::bytes(bytes))
    }

    fn count(count: u64) -> Value {
        Value::amount(count as f64, show::count(count))
    }

    fn id(id: u32) -> Value {
        Value { text: id.to_string(), key: Key::Id(id.into()) }
    }

    fn gpu(name: String) -> Value {
        match name.parse() {
            Ok(number) => Value::id(number),
            Err(_) => Value::text(name),
        }
    }

    /// Returns an unknown value before the second look.
    fn rate(rate: Option<f64>) -> Value {
        rate.map_or(Value::unknown(), |rate| Value::amount(rate, show::per_second(rate)))
    }
}

/// Returns the lines of all processes, largest first; those that do not respond come last.
pub(super) fn processes(look: &Look, rates: &Rates) -> Vec<Line<PROCESS_COLUMNS>> {
    let devices = |sample| look.devices(sample).map(move |device| (sample, device));
    let mut all: Vec<(&Sample, i32)> = look.samples.iter().flat_map(devices).collect();
    all.sort_by_key(|(sample, device)| {
        (Reverse(allocated(sample, *device)), sample.process.0, *device)
    });
    let own = nix::unistd::geteuid().as_raw();
    let has_others = look.samples.iter().any(|sample| sample.user != own);
    let responding = all.into_iter().map(|(sample, device)| {
        let user = if has_others { name_of_user(sample.user) } else { String::new() };
        process(look, sample, device, user, rates)
    });
    responding.chain(look.silent.iter().map(|process| silent(*process))).collect()
}

fn name_of_user(user: u32) -> String {
    let known = nix::unistd::User::from_uid(user.into()).ok().flatten();
    known.map_or(user.to_string(), |user| user.name)
}

pub(super) fn allocated(sample: &Sample, device: i32) -> u64 {
    sample.statistics.of_device(device, "allocated_bytes.all.current")
}

fn process(
    look: &Look,
    sample: &Sample,
    device: i32,
    user: String,
    rates: &Rates,
) -> Line<PROCESS_COLUMNS> {
    let number = |key| sample.statistics.of_device(device, key);
    let hits = sample.statistics.hit_rate();
    let values = [
        Value::id(sample.process.0),
        Value::gpu(look.named(sample, device).name),
        Value::bytes(allocated(sample, device)),
        Value::bytes(number("allocated_bytes.all.peak")),
        Value::bytes(number("reserved_bytes.all.current")),
        Value::count(number("allocation.all.current")),
        Value::rate(rates.allocations(sample)),
        hits.map_or(Value::unknown(), |hits| Value::amount(hits, show::share(hits))),
        Value::rate(rates.waits(sample)),
        Value::text(user),
        Value::text(sample.title.clone()),
    ];
    Line { about: About::Process(sample.process, Some(device)), values }
}

/// Returns the lines of a process that has ended, with its last numbers.
pub(super) fn ended(look: &Look, sample: &Sample) -> Vec<Line<PROCESS_COLUMNS>> {
    let line = |device| {
        let mut line = process(look, sample, device, String::new(), &Rates::default());
        let last = line.values.len() - 1;
        line.values[last] = Value::text(format!("(ended) {}", sample.title));
        line
    };
    look.devices(sample).map(line).collect()
}

fn silent(process: Process) -> Line<PROCESS_COLUMNS> {
    let mut values = std::array::from_fn(|_| Value::unknown());
    values[0] = Value::id(process.0);
    values[9] = Value::text(String::new());
    values[10] = Value::text(format!("{} ({})", process.command(), why_silent(process)));
    Line { about: About::Process(process, None), values }
}

pub(super) fn why_silent(process: Process) -> &'static str {
    if process.is_stopped() { "stopped" } else { "does not respond" }
}

/// Returns the lines of call sites, those that hold most first.
pub(super) fn sites(look: &Look, sample: &Sample, rates: &Rates) -> Vec<Line<SITE_COLUMNS>> {
    let mut sites: Vec<&CallSite> = sample.statistics.call_sites.iter().flatten().collect();
    sites.sort_by_key(|site| Reverse((site.bytes, site.bytes_at_peak, site.allocations)));
    let places = show::places(&sites);
    let line = |(site, place): (&CallSite, String)| Line {
        about: About::Site(site.device, site.frames.clone()),
        values: [
            Value::bytes(site.bytes),
            Value::bytes(site.bytes_at_peak),
            Value::count(site.blocks),
            Value::rate(rates.of_site(sample, site)),
            Value::gpu(look.named(sample, site.device).name),
            Value::text(site.library.clone()),
            Value::text(place),
        ],
    };
    sites.into_iter().zip(places).map(line).collect()
}

//! Everything that the command does with a snapshot, and the bound on its cost.

use std::io::{self, Write};
use std::time::Duration;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::names::Names;
use cachealloc_analysis::waste::{Pattern, Waste};
use cachealloc_analysis::{
    Aggregate, Group, Lifetimes, SiteKey, Usage, When, difference, formats, read,
    reserved_over_time, shortages, sites,
};
use cachealloc_report::FitWhen;

use crate::counting::cost;

/// Peak memory per byte of a file, in addition to the minimum for any file.
const MEMORY_PER_BYTE: usize = 200;
const MEMORY_LEAST: usize = 48 << 20;
/// Time per MiB of a file, in addition to the minimum for any file, on a slow machine with all
/// assertions on.
const TIME_PER_MIB: Duration = Duration::from_secs(6);
const TIME_LEAST: Duration = Duration::from_millis(1500);

/// Reads a file, runs everything that the command does with it, and fails if that costs too much.
/// Returns the error message if the file is rejected, also after it was read.
#[track_caller]
pub fn within_bounds(name: &str, file: &[u8]) -> Result<(), String> {
    let (said, cost) = cost(|| {
        let snapshot = read(file).map_err(|error| error.to_string())?;
        // The command also produces the contents of the page, and replays the history for that
        // again: for one file in four.
        all(snapshot, file.len().is_multiple_of(4))
    });
    let memory = MEMORY_LEAST + MEMORY_PER_BYTE * file.len();
    let time = TIME_LEAST + TIME_PER_MIB.mul_f64(file.len() as f64 / (1 << 20) as f64);
    let about = || format!("{name}: a file of {} bytes, {said:?}", file.len());
    assert!(cost.peak_bytes <= memory, "{}: {cost:?}, not {memory} bytes", about());
    assert!(cost.time <= time, "{}: {cost:?}, not {time:?}", about());
    if std::env::var_os("FUZZ_COSTS").is_some() {
        let _ = writeln!(io::stderr(), "{} {cost:?}", about());
    }
    said
}

/// A writer that discards its input.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn all(snapshot: Snapshot, told: bool) -> Result<(), String> {
    for device in snapshot.devices.iter().chain([&snapshot.host]) {
        let lifetimes = Lifetimes::of(device);
        let _ = reserved_over_time(device);
        let _ = Usage::of_all(&device.segments).fragmentation();
        let waste = Waste::of(device, &lifetimes);
        for (index, life) in lifetimes.all.iter().enumerate() {
            let _ = Pattern::ALL.map(|pattern| waste.shows(pattern, index, life));
        }
        let _ = shortages(device, &lifetimes);
        for when in [When::End, When::Peak, When::Entry(3), When::AfterUs(5)] {
            let at = when.resolve(device, &lifetimes).expect("there is always one");
            let _ = sites(device, &lifetimes, at);
        }
    }
    let mut common = Snapshot::default();
    let mut aggregate = Aggregate::default();
    aggregate.add(&mut common, &snapshot, When::Peak, None);
    let names = Names::of(&common);
    for group in [Group::Stack, Group::Line, Group::Function] {
        let _ = difference(&common, &names, group, &Aggregate::default(), &aggregate);
    }
    drop((common, aggregate, names));
    let text = |written: io::Result<()>| written.map_err(|error| error.to_string());
    let mut said = Ok(());
    for written in [
        formats::folded(&snapshot, SiteKey::Live, When::Peak, Nowhere),
        formats::speedscope(&snapshot, "x", Nowhere),
        formats::perfetto(&snapshot, Nowhere),
        formats::json(&snapshot, Nowhere),
    ] {
        said = said.and(text(written));
    }
    let inputs = [cachealloc_report::Input { name: "x".into(), snapshot }];
    if told {
        drop(cachealloc_report::tell(&inputs, FitWhen::Short, When::Peak));
    }
    said.and(text(cachealloc_report::write(&inputs, FitWhen::Short, &mut Nowhere)))
}

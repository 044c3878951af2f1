//! The whole report: every context, the driver's calls, the waits, and which call sites hold
//! memory. It resolves names of libraries, so it must be called where a snapshot may be written.

use core::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use cachealloc_history::{Describe, Frame, StackId, is_source};
use cachealloc_options::{Record, Word};
use cachealloc_statistics::{CallSite, Gpu, Holder, HostCache, Place, Recording, Report};

use crate::assembly::reading;
use crate::cache::pinned_blocks;
use crate::driver::hardware::Hardware;
use crate::driver_memory::{breakdown, limits, table};
use crate::process::lock_timeout::LockWait;
use crate::record::holders::StackTotals;
use crate::record::settings;
use crate::record::symbols::Names;
use crate::snapshots::{contents, outcomes};
use crate::state::contexts;
use crate::statistics::{counters, steady, waits};
use crate::trim::scavenger;
use crate::{config, record};

/// Maximum number of named call sites of a context: of those that hold most, and of those that
/// allocate most.
const SITES_MAX: usize = 50;

/// Writes the report to a file: as JSON if its name ends in `json`, as text otherwise.
pub(crate) fn write(path: &Path) -> io::Result<()> {
    let as_json = path.extension() == Some(OsStr::new("json"));
    let report = take(LockWait::Timeout, as_json);
    let text = if as_json {
        cachealloc_statistics::json(&report)
    } else {
        cachealloc_statistics::text(&report)
    };
    contents::write_file(path, |out| out.write_all(text.as_bytes()))
}

/// Returns the report as JSON. `sites` includes the call sites that hold or allocate most.
pub(crate) fn json(wait: LockWait, sites: bool) -> String {
    cachealloc_statistics::json(&take(wait, sites))
}

fn take(wait: LockWait, sites: bool) -> Report {
    let contexts = reading::reports(wait);
    let measures = scavenger::measures();
    Report {
        version: env!("CARGO_PKG_VERSION"),
        process_id: std::process::id(),
        free_mode: config::get().free_mode.word(),
        contexts,
        gpus: gpus(),
        calls: counters::calls(),
        waits: waits::all(),
        counts: counters::counts(),
        host_cache: host_cache(wait),
        holders: record::is_on().then(|| contents::with_all_names(holders)),
        call_sites: (sites && record::is_on()).then(call_sites),
        snapshots: outcomes::all(),
        recording: recording_now(),
        limits: limits::all(),
        trims: scavenger::trims(),
        steady: steady::so_far(),
        steady_ended_by: steady::ended_by()
            .filter(|_| sites)
            .map(|stack| contents::with_names([stack], |names| shown_all(names, stack))),
        breakdowns: (measures.asked_count > 0).then(|| breakdown::breakdowns(wait)),
        measures,
    }
}

fn host_cache(wait: LockWait) -> HostCache {
    let (pieces_count, bytes) = pinned_blocks::kept(wait).unwrap_or_default();
    HostCache { pieces_count, bytes }
}

/// GPUs by device; several contexts may be on one.
fn gpus() -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for context in contexts::every() {
        let Hardware { uuid, whole_uuid, pci, .. } = &context.hardware;
        if gpus.iter().all(|gpu| gpu.device != context.device) {
            gpus.push(Gpu {
                device: context.device,
                uuid: uuid.clone(),
                whole_uuid: whole_uuid.clone(),
                pci: pci.clone(),
                total_bytes: Some(context.device_bytes).filter(|bytes| *bytes != u64::MAX),
            });
        }
    }
    gpus.sort_unstable_by_key(|gpu| gpu.device);
    gpus
}

fn recording_now() -> Option<Recording> {
    Some(settings::now()).filter(|now| now.record != Record::Off)
}

/// Totals of the stacks in each context, and of the stacks of what the driver serves directly.
fn stacks_of_devices() -> Vec<(i32, Vec<StackTotals>)> {
    let of_caches = contexts::every().map(|context| (context.device, context.recorder.holders()));
    let mut all: Vec<_> = of_caches.collect();
    all.extend(table::holders(LockWait::Timeout));
    all
}

/// Holders by device and library, the largest at the peak first.
fn holders(names: &mut Names) -> Vec<Holder> {
    let mut sums: BTreeMap<(i32, String), (u64, u64)> = BTreeMap::new();
    for (device, mut stacks) in stacks_of_devices() {
        stacks.retain(|totals| totals.bytes != 0 || totals.bytes_at_peak != 0);
        names.prepare_categories(stacks.iter().map(|totals| totals.stack));
        for StackTotals { stack, bytes, bytes_at_peak, .. } in stacks {
            let library = if stack.is_none() { String::new() } else { names.category(stack) };
            let library = if library.is_empty() { "unknown".to_string() } else { library };
            let sum = sums.entry((device, library)).or_default();
            *sum = (sum.0 + bytes, sum.1 + bytes_at_peak);
        }
    }
    let mut holders: Vec<Holder> = sums
        .into_iter()
        .map(|((device, library), (bytes, bytes_at_peak))| Holder {
            device,
            library,
            bytes,
            bytes_at_peak,
        })
        .collect();
    holders.sort_by_key(|holder| (holder.device, Reverse(holder.bytes_at_peak)));
    holders
}

/// Call sites with names: on each device those that hold most, and those that allocated most often.
fn call_sites() -> Vec<CallSite> {
    let mut sites = Vec::new();
    for (device, mut stacks) in stacks_of_devices() {
        stacks.sort_by_key(|totals| Reverse((totals.bytes, totals.allocations_count)));
        let rest = stacks.split_off(stacks.len().min(SITES_MAX));
        let mut rest: Vec<StackTotals> =
            rest.into_iter().filter(|totals| !totals.stack.is_none()).collect();
        rest.sort_by_key(|totals| Reverse(totals.allocations_count));
        stacks.extend(rest.into_iter().take(SITES_MAX));
        let numbers: Vec<_> = stacks.iter().map(|totals| totals.stack).collect();
        contents::with_names(numbers, |names| {
            sites.extend(stacks.iter().map(|totals| call_site(device, totals, names)));
        });
    }
    sites
}

fn call_site(device: i32, totals: &StackTotals, names: &mut Names) -> CallSite {
    let known = !totals.stack.is_none();
    CallSite {
        device,
        library: if known { names.category(totals.stack) } else { String::new() },
        bytes: totals.bytes,
        bytes_at_peak: totals.bytes_at_peak,
        blocks_count: totals.allocations_count.saturating_sub(totals.frees_count),
        allocations_count: totals.allocations_count,
        frames: if known { shown_all(names, totals.stack) } else { Vec::new() },
    }
}

fn shown_all(names: &mut Names, stack: StackId) -> Vec<cachealloc_statistics::Frame> {
    names.frames(stack).iter().map(|frame| shown(frame)).collect()
}

fn shown(frame: &Frame) -> cachealloc_statistics::Frame {
    let Frame { name, filename, line } = frame.clone();
    let place = if is_source(&filename) { Place::Line(line) } else { Place::Offset(line) };
    cachealloc_statistics::Frame { name, filename, place }
}

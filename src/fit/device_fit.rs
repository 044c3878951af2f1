//! The whole result for one device of a snapshot.

use cachealloc_analysis::model::{Action, Device, Snapshot};
use cachealloc_analysis::{Lifetimes, reserved_over_time, shortages};
use cachealloc_options::{Config, parse};

use crate::memory::Capacity;
use crate::option_sets::{OptionSet, worth_trying};
use crate::requests::Requests;
use crate::trials::{Trial, Verdict, capacity_of, run_trials, verdict};
use crate::unknowns::unknowns;

/// What to find out from a history.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Sets of options to try. Empty stands for all that are worth trying.
    pub sets: &'a [OptionSet],
    /// Memory of a device. `None` stands for what was available when the last request of the
    /// history failed, if any did.
    pub device_bytes: Option<u64>,
    /// Whether requests that failed must be served.
    pub with_failed: bool,
}

#[derive(Clone, Debug)]
pub struct DeviceFit {
    pub requests: Requests,
    /// Peak of what the recorded run had reserved.
    pub recorded_reserved_bytes: u64,
    /// Capacity that the run has to fit into.
    pub capacity: Option<Capacity>,
    /// Whether it fits.
    pub verdict: Option<Verdict>,
    /// Trials, the best first.
    pub trials: Vec<Trial>,
    pub unknowns: Vec<String>,
}

impl DeviceFit {
    /// Returns the result of each wanted device that has a history, by its ordinal. Without a
    /// history, the order of its blocks is unknown.
    pub fn all(
        snapshot: &Snapshot,
        question: Question,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Vec<(u32, DeviceFit)> {
        let devices = (0..).zip(&snapshot.devices);
        let devices = devices.filter(|(ordinal, it)| is_wanted(*ordinal) && has_history(it));
        devices.map(|(ordinal, it)| (ordinal, DeviceFit::of(snapshot, it, question))).collect()
    }

    pub fn of(snapshot: &Snapshot, device: &Device, question: Question) -> DeviceFit {
        let lifetimes = Lifetimes::of(device);
        let requests = Requests::of(snapshot, device, &lifetimes, question.with_failed);
        let then =
            question.with_failed.then(|| capacity_then(snapshot, device, &lifetimes)).flatten();
        let capacity = question.device_bytes.map(Capacity::Device).or(then);
        let capacity_for = |config: &Config| match capacity {
            Some(Capacity::Device(bytes)) => capacity_of(config, Some(bytes)),
            Some(capacity) => capacity,
            None => capacity_of(config, None),
        };
        let usual = match question.sets {
            [] => worth_trying(requests.largest_bytes()),
            _ => Vec::new(),
        };
        let sets = if usual.is_empty() { question.sets } else { &usual };
        let trials = run_trials(&requests, sets, capacity_for);
        let verdict =
            capacity.and_then(Capacity::bytes).map(|bytes| verdict(&requests, &trials, bytes));
        let recorded_reserved_bytes = reserved_over_time(device).into_iter().max().unwrap_or(0);
        let unknowns = unknowns(snapshot, device, &lifetimes, &requests);
        DeviceFit { requests, recorded_reserved_bytes, capacity, verdict, trials, unknowns }
    }
}

fn has_history(device: &Device) -> bool {
    let counts = |action| matches!(action, Action::Alloc | Action::OutOfMemory);
    device.entries.iter().any(|entry| counts(entry.action))
}

/// Returns what the process had or could have had when its last request failed: the limit of its
/// options, or else everything reserved and free. Returns `None` if nothing failed, or the limit
/// was a share of a device of unknown size.
fn capacity_then(snapshot: &Snapshot, device: &Device, lifetimes: &Lifetimes) -> Option<Capacity> {
    let last = shortages(device, lifetimes).pop()?;
    let conf = snapshot.setting("PYTORCH_CUDA_ALLOC_CONF").unwrap_or_default();
    let limit = parse(conf).0.limit;
    match limit.bytes {
        Some(bytes) => Some(Capacity::Limit(bytes)),
        None if limit.fraction < 1.0 => None,
        None => Some(Capacity::Device(last.reserved_bytes.saturating_add(last.device_free_bytes))),
    }
}

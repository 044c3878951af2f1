//! One run under many sets of options: what each needs, and what that means for a device.

use std::cmp::Reverse;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cachealloc_core::policy::MIB;
use cachealloc_options::Config;

use crate::memory::Capacity;
use crate::option_sets::OptionSet;
use crate::replay::{Outcome, replay};
use crate::requests::Requests;
use crate::smallest::{Smallest, smallest};

/// Result of one set of options.
#[derive(Clone, PartialEq, Debug)]
pub struct Trial {
    pub set: OptionSet,
    /// Outcome in the given capacity.
    pub outcome: Outcome,
    /// The smallest `gpu_memory_limit_mb`, or `None` if the run completes with none.
    pub limit: Option<Smallest>,
    /// The smallest memory of a device that is available for these requests.
    pub device: Option<Smallest>,
}

/// Conclusion from the trials for the given capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The run fits with the set of options at this index: the defaults, or else the best.
    Fits(usize),
    /// The run holds less at its peak, but completes with none of the sets of options that were
    /// tried.
    FitsWithNone,
    /// The run holds more than that at its peak: no options help.
    CannotFit,
}

/// The smallest sizes are found to this fraction of what is held, or to a MiB.
const UNITS_COUNT: u64 = 1024;
/// Maximum number of steps to replay for larger sizes, and as many for smaller ones.
const MORE_STEPS_MAX: usize = 2_000_000;
const MORE_COUNT_MAX: usize = 24;

/// Returns the capacity of a device of this size, or of unknown size, with a limit that the options
/// set themselves.
pub(crate) fn capacity_of(config: &Config, device_bytes: Option<u64>) -> Capacity {
    let limit_bytes = match device_bytes {
        Some(bytes) => config.limit.on(bytes).filter(|limit| *limit < bytes),
        None => config.limit.bytes,
    };
    match (limit_bytes, device_bytes) {
        (Some(bytes), _) => Capacity::Limit(bytes),
        (None, Some(bytes)) => Capacity::Device(bytes),
        (None, None) => Capacity::Plenty,
    }
}

/// Returns the trials: the sets that complete first, then by their smallest limit, what they
/// reserve, and their calls to the driver. `capacity` returns the capacity under the options of a
/// set.
pub(crate) fn run_trials(
    requests: &Requests,
    sets: &[OptionSet],
    capacity: impl Fn(&Config) -> Capacity + Sync,
) -> Vec<Trial> {
    // The searches take longest, so they begin first, and no thread ends much later than the
    // others.
    let searches: Vec<OnceLock<[Option<Smallest>; 2]>> = vec![OnceLock::new(); sets.len()];
    let outcomes: Vec<OnceLock<Outcome>> = vec![OnceLock::new(); sets.len()];
    let next = AtomicUsize::new(0);
    let work = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if let Some(set) = sets.get(number) {
            searches[number].get_or_init(|| search(requests, &set.config));
        } else if let Some(set) = sets.get(number - sets.len()) {
            let capacity = capacity(&set.config);
            outcomes[number - sets.len()].get_or_init(|| replay(requests, &set.config, capacity));
        } else {
            break;
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(2 * sets.len());
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let found = searches.into_iter().zip(outcomes).zip(sets).map(|((search, outcome), set)| {
        let [limit, device] = search.into_inner().expect("a thread has searched");
        let outcome = outcome.into_inner().expect("a thread has replayed it");
        Trial { set: set.clone(), outcome, limit, device }
    });
    let mut found: Vec<(usize, Trial)> = found.enumerate().collect();
    found.sort_by_key(|(index, trial)| {
        let limit_bytes = trial.limit.as_ref().map_or(u64::MAX, |limit| limit.bytes);
        let Outcome { peak_reserved_bytes, driver_calls, .. } = trial.outcome;
        let completes = Reverse(trial.outcome.completes());
        (completes, limit_bytes, peak_reserved_bytes, driver_calls, *index)
    });
    found.into_iter().map(|(_, trial)| trial).collect()
}

/// Returns the smallest limit and the smallest device.
fn search(requests: &Requests, config: &Config) -> [Option<Smallest>; 2] {
    let held_bytes = requests.peak_bytes();
    let unit_bytes = (held_bytes / UNITS_COUNT / MIB).max(1) * MIB;
    let steps_count = requests.steps().len().max(1);
    let more_count = (MORE_STEPS_MAX / steps_count).clamp(2, MORE_COUNT_MAX) as u32;
    let smallest = |guess_bytes, capacity: fn(u64) -> Capacity| {
        let completes = |bytes| replay(requests, config, capacity(bytes)).completes();
        smallest(held_bytes, guess_bytes, unit_bytes, more_count, completes)
    };
    let limit = smallest(None, Capacity::Limit);
    // This is only a guess: segments within a limit and on a device differ
    // (`Allocator::set_capacity`).
    let device = smallest(limit.as_ref().map(|limit| limit.bytes), Capacity::Device);
    [limit, device]
}

/// Returns the verdict on trials in the order of `run_trials`, for a capacity of this many bytes.
pub(crate) fn verdict(requests: &Requests, trials: &[Trial], capacity_bytes: u64) -> Verdict {
    let completes = |trial: &Trial| trial.outcome.completes();
    // If the defaults complete, nothing has to be changed.
    let defaults = |trial: &Trial| completes(trial) && trial.set.text.is_empty();
    match trials.iter().position(defaults).or_else(|| trials.iter().position(completes)) {
        Some(index) => Verdict::Fits(index),
        None if requests.peak_bytes() > capacity_bytes => Verdict::CannotFit,
        None => Verdict::FitsWithNone,
    }
}

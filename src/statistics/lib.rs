//! The statistics as others read them: by PyTorch's names (`keys`), as PyTorch's table (`summary`),
//! as JSON (`json`), as text for people (`text`), and in a file that other processes read (`page`), through
//! which they also send orders (`control`, `sender`, `shares`); and where the memory of a device is (`breakdown`). The caller
//! collects the numbers.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

use std::time::Duration;

use cachealloc_core::Stats;

use crate::breakdown::Breakdown;

pub mod breakdown;
pub mod control;
pub mod keys;
pub mod page;
pub mod sender;
pub mod shares;

mod json;
mod summary;
mod text;

pub use json::{SCHEMA_VERSION, json};
pub use summary::summary;
pub use text::text;

/// The statistics of a process.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub version: &'static str,
    pub process_id: u32,
    pub free_mode: &'static str,
    pub contexts: Vec<ContextReport>,
    /// Of each device that the process has had a context on.
    pub gpus: Vec<Gpu>,
    /// Driver calls that were made for the cache, and the time spent in them.
    pub calls: Vec<Timed>,
    /// Waits that were inserted, by reason.
    pub waits: Vec<Timed>,
    /// What else was counted.
    pub counts: Vec<(&'static str, u64)>,
    /// Pinned memory of the host that the program has freed.
    pub host_cache: HostCache,
    /// Memory by library; None if nothing is recorded.
    pub holders: Option<Vec<Holder>>,
    /// Memory by call site; None if nothing is recorded, or it was not asked for.
    pub call_sites: Option<Vec<CallSite>>,
    pub snapshots: Snapshots,
    /// What is recorded just now; None: nothing.
    pub recording: Option<Recording>,
    /// Of each device that the process has a context on.
    pub limits: Vec<Limit>,
    pub trims: Trims,
    /// For how long no allocation has reached the driver; None: none ever has.
    pub steady: Option<Duration>,
    /// The frames of the allocation that ended the last steady state, innermost first; None: there was none, it is
    /// not recorded, or it was not asked for.
    pub steady_ended_by: Option<Vec<Frame>>,
    pub measures: Measures,
    /// Of each device, and of the host; None if it was not asked for.
    pub breakdowns: Option<Vec<Breakdown>>,
}

/// One context, alive or gone.
#[derive(Clone, Debug, Default)]
pub struct ContextReport {
    pub id: u64,
    pub device: i32,
    pub is_alive: bool,
    /// How many contexts the process had met when this one was met, and when it was gone.
    pub met: usize,
    pub gone: usize,
    pub stats: Stats,
    pub barriers_count: u64,
}

/// Which GPU of the machine a device of the process is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// Its number in the process.
    pub device: i32,
    /// `GPU-...`, of a part of a GPU `MIG-...`; None where the driver does not say.
    pub uuid: Option<String>,
    /// Of the GPU that it is a part of.
    pub whole_uuid: Option<String>,
    /// Its PCI address.
    pub pci: Option<String>,
    pub total_bytes: Option<u64>,
}

/// Something that happened so often and took so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timed {
    pub name: &'static str,
    pub count: u64,
    /// None if it was not measured.
    pub nanoseconds: Option<u64>,
}

/// Pinned memory of the host that is kept for later requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCache {
    /// Each is one allocation of the driver's.
    pub pieces_count: u64,
    pub bytes: u64,
}

/// What one library holds of a device's memory, in requested bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub device: i32,
    pub library: String,
    pub bytes: u64,
    /// When the requested bytes of the context were at their peak.
    pub bytes_at_peak: u64,
}

/// What one call site holds of a device's memory, in requested bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallSite {
    pub device: i32,
    pub library: String,
    pub bytes: u64,
    pub bytes_at_peak: u64,
    pub blocks_count: u64,
    /// How often it allocated.
    pub allocations_count: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub name: String,
    /// A source, or a library.
    pub filename: String,
    pub place: Place,
}

/// Where in a file a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Line(u64),
    /// In a library without lines.
    Offset(u64),
}

/// How to get a snapshot of the process, and the outcome of earlier requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshots {
    /// The signal that asks for one, by its number.
    pub signal: Option<i32>,
    pub written_count: u64,
    pub failed_count: u64,
    /// The file of the last one.
    pub last: Option<String>,
    /// Why the last one that failed did.
    pub last_problem: Option<String>,
}

/// What is recorded, by the words of the options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    pub record: &'static str,
    pub context: &'static str,
    pub stacks: &'static str,
    pub max_entries: u64,
    /// The only device whose memory is recorded; None: all are.
    pub device: Option<i32>,
}

/// What the process may hold of a device, and what of it is known to be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub device: i32,
    pub limit_bytes: Option<u64>,
    pub held_bytes: u64,
}

/// Memory released on order of another process: how often it was ordered and done, and the total of
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trims {
    pub asked_count: u32,
    pub done_count: u32,
    pub bytes: u64,
}

/// How often another process had the driver asked for the accounts, and how often that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measures {
    pub asked_count: u32,
    pub done_count: u32,
}

impl Report {
    /// The devices that any context is of, in order.
    pub fn devices(&self) -> Vec<i32> {
        let mut devices: Vec<i32> = self.contexts.iter().map(|context| context.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// All contexts of a device together. Of several the peak is what it was at most: the largest
    /// sum of the peaks of those that were there at the same time.
    pub fn of_device(&self, device: i32) -> Stats {
        let of_device = || self.contexts.iter().filter(|context| context.device == device);
        let mut stats = Stats::default();
        of_device().for_each(|context| stats.add(&context.stats));
        let mut highest = Stats::default();
        for latest in of_device() {
            let mut together = Stats::default();
            let there = |other: &&ContextReport| other.met <= latest.met && latest.met < other.gone;
            of_device().filter(there).for_each(|context| together.add(&context.stats));
            highest.raise_peaks(&together);
        }
        stats.take_peaks(&highest);
        stats
    }

    /// Allocations that were served, and those of them for which no segment was needed.
    pub fn hits(&self) -> (u64, u64) {
        let sum = |number: fn(&Stats) -> u64| {
            self.contexts.iter().map(|context| number(&context.stats)).sum::<u64>()
        };
        let served = sum(|stats| stats.allocation.all.allocated);
        (served, served.saturating_sub(sum(|stats| stats.num_device_alloc)))
    }
}

//! The statistics as others read them: by PyTorch's names (`keys`), as PyTorch's table (`summary`),
//! as JSON (`json`), as text for people (`text`), and in a file that other processes read (`page`).
//! Through that file they also send control commands (`control`, `sender`, `shares`). `breakdown`
//! shows where the memory of a device is. The caller collects the numbers.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

use std::time::Duration;

use cachealloc_core::Stats;
use cachealloc_options::{Record, StackContext, StackKind};

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
    /// GPUs of the devices on which the process has had a context.
    pub gpus: Vec<Gpu>,
    /// Driver calls that were made for the cache, and the time spent in them.
    pub calls: Vec<Timed>,
    /// Waits that were inserted, by reason.
    pub waits: Vec<Timed>,
    /// Other counted events.
    pub counts: Vec<(&'static str, u64)>,
    /// Pinned memory of the host that the program has freed.
    pub host_cache: HostCache,
    /// Memory by library. `None` if nothing is recorded.
    pub holders: Option<Vec<Holder>>,
    /// Memory by call site. `None` if nothing is recorded, or it was not requested.
    pub call_sites: Option<Vec<CallSite>>,
    pub snapshots: Snapshots,
    /// Present settings of the recording, or `None` if it is off.
    pub recording: Option<Recording>,
    /// Limits of the devices on which the process has a context.
    pub limits: Vec<Limit>,
    pub trims: Trims,
    /// Time since an allocation last reached the driver, or `None` if none ever has.
    pub steady: Option<Duration>,
    /// Frames of the allocation that ended the last steady state, innermost first. `None` if there
    /// was none, it is not recorded, or it was not requested.
    pub steady_ended_by: Option<Vec<Frame>>,
    pub measures: Measures,
    /// Breakdowns of each device and of the host. `None` if they were not requested.
    pub breakdowns: Option<Vec<Breakdown>>,
}

/// One context, alive or ended.
#[derive(Clone, Debug, Default)]
pub struct ContextReport {
    pub id: u64,
    pub device: i32,
    pub is_alive: bool,
    /// Number of contexts that the process had seen when this one was first seen, and when it
    /// ended.
    pub met: usize,
    pub gone: usize,
    pub stats: Stats,
    pub barriers_count: u64,
}

/// The GPU of the machine that a device of the process stands for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// Number of the device in the process.
    pub device: i32,
    /// `GPU-...`, or `MIG-...` for a part of a GPU. `None` if the driver does not report it.
    pub uuid: Option<String>,
    /// UUID of the GPU that it is a part of.
    pub whole_uuid: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    pub total_bytes: Option<u64>,
}

/// Count and total time of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timed {
    pub name: &'static str,
    pub count: u64,
    /// `None` if it was not measured.
    pub nanoseconds: Option<u64>,
}

/// Pinned memory of the host that is kept for later requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCache {
    /// Number of allocations of the driver.
    pub pieces_count: u64,
    pub bytes: u64,
}

/// Memory of a device that one library holds, in requested bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub device: i32,
    pub library: String,
    pub bytes: u64,
    /// Bytes when the requested bytes of the context were at their peak.
    pub bytes_at_peak: u64,
}

/// Memory of a device that one call site holds, in requested bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallSite {
    pub device: i32,
    pub library: String,
    pub bytes: u64,
    pub bytes_at_peak: u64,
    pub blocks_count: u64,
    /// Number of allocations of the site.
    pub allocations_count: u64,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub name: String,
    /// Path of a source file or of a library.
    pub filename: String,
    pub place: Place,
}

/// Position of a frame in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Line(u64),
    /// Offset in a library without line numbers.
    Offset(u64),
}

/// How to request a snapshot of the process, and the outcome of earlier requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshots {
    /// Number of the signal that requests a snapshot.
    pub signal: Option<i32>,
    pub written_count: u64,
    pub failed_count: u64,
    /// File of the last snapshot.
    pub last: Option<String>,
    /// Reason of the last failure.
    pub last_problem: Option<String>,
}

/// Settings of the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    pub record: Record,
    pub context: StackContext,
    pub stacks: StackKind,
    /// Number of entries of each context.
    pub max_entries: u64,
    /// The only device whose memory is recorded, or `None` for all devices.
    pub device: Option<i32>,
}

/// Limit of a device, and the bytes that are known to be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub device: i32,
    pub limit_bytes: Option<u64>,
    pub held_bytes: u64,
}

/// Memory released by control commands of other processes: the numbers of commands sent and done,
/// and the total of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trims {
    pub asked_count: u32,
    pub done_count: u32,
    pub bytes: u64,
}

/// Number of times another process had the driver asked for breakdowns, and how often that was
/// done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measures {
    pub asked_count: u32,
    pub done_count: u32,
}

impl Report {
    /// Returns the devices of all contexts, in order.
    pub fn devices(&self) -> Vec<i32> {
        let mut devices: Vec<i32> = self.contexts.iter().map(|context| context.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Returns the statistics of all contexts of a device together. The peak of several contexts is
    /// an upper bound: the largest sum of the peaks of contexts that existed at the same time.
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

    /// Returns the number of allocations served, and how many of them needed no segment.
    pub fn hits(&self) -> (u64, u64) {
        let sum = |number: fn(&Stats) -> u64| {
            self.contexts.iter().map(|context| number(&context.stats)).sum::<u64>()
        };
        let served = sum(|stats| stats.allocation.all.allocated);
        (served, served.saturating_sub(sum(|stats| stats.num_device_alloc)))
    }
}

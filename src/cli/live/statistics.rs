//! Parses the statistics of a process: the JSON of `cachealloc_statistics`.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use cachealloc_statistics::breakdown::{Breakdown, Component};
use serde::Deserialize;

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Statistics {
    /// The library's version.
    #[serde(rename = "cachealloc")]
    pub version: String,
    pub free_mode: String,
    pub allocations_served: u64,
    pub hits: u64,
    pub barriers: u64,
    pub driver_calls: BTreeMap<String, Timed>,
    pub waits: BTreeMap<String, Timed>,
    pub counts: BTreeMap<String, u64>,
    /// PyTorch's keys, by device number.
    pub devices: BTreeMap<i32, BTreeMap<String, i64>>,
    /// The machine's GPUs that these devices are. Not all libraries of this version report them.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// `None` if nothing is recorded.
    pub libraries: Option<Vec<Library>>,
    /// `None` if nothing is recorded or call sites were not requested.
    pub call_sites: Option<Vec<CallSite>>,
    pub snapshots: Snapshots,
    /// `None` if nothing is recorded.
    pub recording: Option<Recording>,
    pub limits: Vec<Limit>,
    pub trims: Trims,
    /// Seconds since an allocation last reached the driver.
    pub steady_seconds: Option<f64>,
    /// Stack of the allocation that ended the last steady state, innermost frame first.
    pub steady_ended_by: Option<Vec<Frame>>,
    #[serde(default)]
    pub measures: Measures,
    /// `None` if the breakdown was not requested.
    #[serde(default, rename = "accounts")]
    pub breakdowns: Option<Vec<SaidAccount>>,
}

#[derive(Clone, Copy, Default, Deserialize, Debug)]
pub(crate) struct Measures {
    pub asked: u32,
    pub done: u32,
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct SaidAccount {
    device: i32,
    total_bytes: Option<u64>,
    in_use_bytes: Option<u64>,
    age_ms: Option<u64>,
    /// Not all libraries of this version report this.
    #[serde(default)]
    missed: u64,
    rows: Vec<SaidRow>,
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct SaidRow {
    #[serde(rename = "part")]
    component: String,
    library: String,
    bytes: u64,
}

impl SaidAccount {
    /// Converts to a breakdown. Components unknown to this version are left out and so count as
    /// unattributed.
    pub(crate) fn breakdown(&self) -> Breakdown {
        let SaidAccount { device, total_bytes, in_use_bytes, age_ms, missed: missed_count, .. } =
            *self;
        let mut breakdown = Breakdown {
            device,
            total_bytes,
            in_use_bytes,
            age_ms,
            missed_count,
            ..Breakdown::default()
        };
        for SaidRow { component, library, bytes } in &self.rows {
            Component::of_word(component)
                .into_iter()
                .for_each(|component| breakdown.add(component, library, *bytes));
        }
        breakdown
    }
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Gpu {
    /// Number of the device in the process.
    pub device: i32,
    /// `GPU-...`, or `MIG-...` for a part of a GPU.
    pub uuid: Option<String>,
    /// UUID of the whole GPU if this is a part of one.
    pub whole_uuid: Option<String>,
    pub pci: Option<String>,
    pub total_bytes: Option<u64>,
}

#[derive(Clone, Copy, Deserialize, Debug)]
pub(crate) struct Timed {
    pub count: u64,
    pub nanoseconds: Option<u64>,
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Library {
    pub device: i32,
    pub library: String,
    pub bytes: u64,
    pub bytes_at_peak: u64,
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct CallSite {
    pub device: i32,
    pub library: String,
    pub bytes: u64,
    pub bytes_at_peak: u64,
    pub blocks: u64,
    pub allocations: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Deserialize, Debug)]
pub(crate) struct Frame {
    pub name: String,
    pub filename: String,
    /// Set for a frame in a source file.
    pub line: Option<u64>,
    /// Set for a frame in a library.
    pub offset: Option<u64>,
}

impl Display for Frame {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.name, self.filename)?;
        match (self.line, self.offset) {
            (Some(line), _) => write!(out, ":{line}"),
            (_, Some(offset)) => write!(out, "+{offset:#x}"),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Default, Deserialize, Debug)]
pub(crate) struct Snapshots {
    pub signal: Option<i32>,
    pub written: u64,
    pub failed: u64,
    pub last: Option<String>,
    pub last_problem: Option<String>,
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Recording {
    pub record: String,
    pub context: String,
    pub stacks: String,
    pub max_entries: u64,
    pub device: Option<i32>,
}

#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Limit {
    pub device: i32,
    pub limit_bytes: Option<u64>,
    pub held_bytes: u64,
}

#[derive(Clone, Copy, Deserialize, Debug)]
pub(crate) struct Trims {
    pub asked: u32,
    pub done: u32,
    pub bytes: u64,
}

impl Statistics {
    /// Returns `None` before the first allocation.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        (self.allocations_served != 0).then(|| self.hits as f64 / self.allocations_served as f64)
    }

    /// Returns a number of a device by PyTorch's key.
    pub(crate) fn of_device(&self, device: i32, key: &str) -> u64 {
        let number = self.devices.get(&device).and_then(|keys| keys.get(key));
        number.copied().unwrap_or(0).max(0) as u64
    }

    /// Returns the GPU that the process reports for one of its device numbers.
    pub(crate) fn gpu(&self, device: i32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.device == device)
    }

    /// Returns how often the program waited inside the library, and for how long in total.
    pub(crate) fn waited(&self) -> (u64, u64) {
        let waits = self.waits.values();
        waits.fold((0, 0), |(count, time), wait| {
            (count.saturating_add(wait.count), time.saturating_add(wait.nanoseconds.unwrap_or(0)))
        })
    }
}

//! What a process says of itself: the JSON of `cachealloc_statistics`, read.

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
    /// By number of the device: PyTorch's keys.
    pub devices: BTreeMap<i32, BTreeMap<String, i64>>,
    /// Which GPUs of the machine these are. Libraries of this version do not all say so.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// None where nothing is recorded.
    pub libraries: Option<Vec<Library>>,
    /// None if nothing is recorded, or it was not asked for.
    pub call_sites: Option<Vec<CallSite>>,
    pub snapshots: Snapshots,
    /// None where nothing is recorded.
    pub recording: Option<Recording>,
    pub limits: Vec<Limit>,
    pub trims: Trims,
    /// Since an allocation last reached the driver.
    pub steady_seconds: Option<f64>,
    /// Of the allocation that ended the last steady state, innermost first.
    pub steady_ended_by: Option<Vec<Frame>>,
    #[serde(default)]
    pub measures: Measures,
    /// None if it was not asked for.
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
    /// Libraries of this version do not all say so.
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
    /// Without parts that this version does not know: they are in the rest.
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
    /// Its number in the process.
    pub device: i32,
    /// `GPU-...`, of a part of a GPU `MIG-...`.
    pub uuid: Option<String>,
    /// Of the GPU that it is a part of.
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
    /// In a source.
    pub line: Option<u64>,
    /// In a library.
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
    /// None before the first allocation.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        (self.allocations_served != 0).then(|| self.hits as f64 / self.allocations_served as f64)
    }

    /// A number of a device, by PyTorch's key.
    pub(crate) fn of_device(&self, device: i32, key: &str) -> u64 {
        let number = self.devices.get(&device).and_then(|keys| keys.get(key));
        number.copied().unwrap_or(0).max(0) as u64
    }

    /// What the process says of a device of its own.
    pub(crate) fn gpu(&self, device: i32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.device == device)
    }

    /// How often the program waited inside the library, and for how long.
    pub(crate) fn waited(&self) -> (u64, u64) {
        let waits = self.waits.values();
        waits.fold((0, 0), |(count, time), wait| {
            (count.saturating_add(wait.count), time.saturating_add(wait.nanoseconds.unwrap_or(0)))
        })
    }
}

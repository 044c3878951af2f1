//! Current statistics of the processes, as they report them.

use std::time::{Duration, Instant};

use super::super::{Result, stats};
use super::gpus::{Monitor, Named, Only};
use crate::kernel::libraries::WatchedGpu;
use crate::live::{self, Live, Statistics};
use crate::processes::Process;

/// Statistics of one process, and when they were read.
#[derive(Clone)]
pub(super) struct Sample {
    pub process: Process,
    /// User of the process, by number.
    pub user: u32,
    pub command: String,
    /// Shorter form of the command: a script without its interpreter.
    pub title: String,
    pub time: Instant,
    pub statistics: Statistics,
    /// The statistics as the process wrote them.
    pub json: String,
}

/// Results of one round of requests.
#[derive(Clone, Default)]
pub(super) struct Look {
    pub samples: Vec<Sample>,
    /// Processes that did not respond in time.
    pub silent: Vec<Process>,
    /// GPUs that NVML reports.
    pub watched: Vec<WatchedGpu>,
    /// Restriction to some GPUs.
    pub only: Only,
}

impl Look {
    /// Returns the wanted devices of a process; none if it has used no device yet.
    pub(super) fn devices(&self, sample: &Sample) -> impl Iterator<Item = i32> {
        let devices = sample.statistics.devices.keys().copied();
        devices.filter(|device| {
            self.only.includes(sample.statistics.gpu(*device), &self.named(sample, *device))
        })
    }

    pub(super) fn named(&self, sample: &Sample, device: i32) -> Named {
        Named::of(device, sample.statistics.gpu(device), &self.watched)
    }

    /// Returns the GPUs that the processes use, each once.
    pub(super) fn gpus(&self) -> Vec<Named> {
        let mut gpus: Vec<Named> = Vec::new();
        for sample in &self.samples {
            let named = self.devices(sample).map(|device| self.named(sample, device));
            for gpu in named.filter(|gpu| gpu.uuid.is_some() || gpu.pci.is_some()) {
                if gpus.iter().all(|known| (&known.name, &known.uuid) != (&gpu.name, &gpu.uuid)) {
                    gpus.push(gpu);
                }
            }
        }
        let number = |gpu: &Named| gpu.name.parse::<u32>().unwrap_or(u32::MAX);
        gpus.sort_by(|a, b| (number(a), &a.name).cmp(&(number(b), &b.name)));
        gpus
    }
}

/// Requests statistics from processes and GPUs.
pub(super) struct Asker {
    /// The only process to ask, if one was named.
    pub process: Option<Process>,
    pub only: Only,
    pub monitor: Monitor,
}

impl Asker {
    /// Requests all statistics, with the call sites of the process `sites_of`.
    pub(super) fn look(&mut self, sites_of: Option<Process>, timeout: Duration) -> Result<Look> {
        let mut look = match self.process {
            Some(process) => one(process)?,
            None => all(sites_of, timeout),
        };
        look.watched = self.monitor.look();
        look.only = self.only.clone();
        let is_wanted: Vec<bool> =
            look.samples.iter().map(|sample| look.devices(sample).next().is_some()).collect();
        if !self.only.is_all() {
            let mut is_wanted = is_wanted.into_iter();
            look.samples.retain(|_| is_wanted.next().unwrap_or(true));
            // The GPUs of these processes are unknown.
            look.silent.clear();
        }
        Ok(look)
    }
}

/// Reads one named process, including its call sites. Waits for it as long as `stats` does.
fn one(process: Process) -> Result<Look> {
    let json = Live::of(process).and_then(|live| Ok((live.ask(true, stats::TIMEOUT)?, live)));
    let sample = json.and_then(|(json, live)| understand(&live, json));
    sample
        .map(|sample| Look { samples: vec![sample], ..Look::default() })
        .map_err(|problem| live::explain(process, &problem))
}

/// Reads all processes. Requests the call sites of `sites_of`.
fn all(sites_of: Option<Process>, timeout: Duration) -> Look {
    let all = Live::all();
    let mut look = Look::default();
    for (live, json) in Live::ask_all(&all, |live| sites_of == Some(live.process), timeout) {
        match json.and_then(|json| understand(live, json)) {
            Ok(sample) => look.samples.push(sample),
            Err(live::Problem::Silent) => look.silent.push(live.process),
            Err(_) => {} // it has just ended
        }
    }
    look
}

fn understand(live: &Live, json: String) -> std::result::Result<Sample, live::Problem> {
    let statistics = live::parse(&json)?;
    let (process, time) = (live.process, Instant::now());
    let (command, title) = process.command_and_title();
    let sample = Sample { process, user: live.user, command, title, time, statistics, json };
    // A process that has ended has no command any longer and does not belong in a table of running
    // programs.
    if live.has_ended() { Err(live::Problem::Ended) } else { Ok(sample) }
}

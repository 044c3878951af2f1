//! `cachealloc explain`: a breakdown of the GPU memory of a process that adds up to the number in
//! nvidia-smi.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use cachealloc_statistics::breakdown::{Breakdown, HOST};
use cachealloc_statistics::control::ControlCommand;
use clap::Args;

use super::Result;
use super::control::{ControlSession, as_timeout};
use crate::failure::Failure;
use crate::live::nvml::{self, used_gpus};
use crate::processes::Process;
use crate::show::breakdown::{self, Explained};
use crate::snapshots;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Break down the GPU memory of a process, adding up to nvidia-smi's figure.
///
/// The rows are the memory of the cache, allocations that the driver serves, graphs and the
/// context. The rest is memory that no call accounts for. Each row states its source: counted from
/// the calls of the program, asked of the driver, or a difference of the memory in use on the
/// device. The program is not stopped.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc explain 4711           a running program, adding up to NVML's figure
  cachealloc explain app.pickle     a snapshot, adding up to the memory in use on the device")]
pub(crate) struct Arguments {
    /// Process under the library, or a snapshot.
    #[arg(value_name = "PID|FILE")]
    what: String,
    /// Show only this device, numbered as in the program.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..64))]
    device: Option<i32>,
    /// Time to wait for the program.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
    /// Print JSON, described in docs/schema.json.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { what, device, timeout, json } = arguments;
    let mut explained = match what.parse() {
        Ok(process) => of_process(Process(process), as_timeout(timeout))?,
        Err(_) => of_file(Path::new(&what))?,
    };
    explained.retain(|it| device.is_none_or(|device| it.reconciled.device == device));
    if explained.is_empty() {
        let of = device.map(|device| format!(" on device {device}")).unwrap_or_default();
        return Err(Failure::new(format!("{what} has no GPU memory{of}")));
    }
    match json {
        true => super::print(&breakdown::json(&explained))?,
        false => super::print_lines(&breakdown::text(&explained))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn of_file(path: &Path) -> Result<Vec<Explained>> {
    let snapshot = snapshots::read(path)?;
    let breakdowns = cachealloc_analysis::breakdowns(&snapshot);
    if breakdowns.is_empty() && snapshot.is_ours() {
        let what = format!("{} does not contain the memory in use on the device", path.display());
        return Err(Failure::new(what).next("use a snapshot that the program itself wrote"));
    }
    let reconciled = breakdowns.iter().map(|breakdown| breakdown.reconcile(None));
    Ok(reconciled.map(|reconciled| Explained { reconciled, gpu: None, note: None }).collect())
}

fn of_process(process: Process, timeout: Duration) -> Result<Vec<Explained>> {
    let session = ControlSession::of(process, timeout)?;
    session.give(ControlCommand::Measure, "the driver was not asked")?;
    let asked = session.statistics()?.measures.asked;
    let statistics = loop {
        let statistics = session.statistics()?;
        let is_done = statistics.measures.done.wrapping_sub(asked) as i32 >= 0;
        // During a capture the driver is not asked, so its numbers are unknown.
        if is_done || Instant::now() >= session.deadline {
            break statistics;
        }
        thread::sleep(LOOK_EVERY);
    };
    let uuid_of = |device: i32| statistics.gpu(device).and_then(|gpu| gpu.uuid.clone());
    let breakdowns: Vec<Breakdown> =
        statistics.breakdowns.iter().flatten().map(|said| said.breakdown()).collect();
    let uuids = breakdowns.iter().filter_map(|breakdown| uuid_of(breakdown.device)).collect();
    let used = used_gpus(uuids);
    let explained = breakdowns.iter().map(|breakdown| {
        let gpu = uuid_of(breakdown.device);
        let used = used.iter().find(|used| Some(&used.uuid) == gpu.as_ref());
        let (sum, note) = match used {
            _ if breakdown.device == HOST => (None, None),
            None => (None, Some("NVML does not know the device: other processes are included")),
            Some(used) => {
                let (said, note) = nvml::of_process(used, process.0);
                let in_use_bytes = breakdown.in_use_bytes.or(Some(used.in_use_bytes));
                (said.and_then(|said| said.sum(in_use_bytes)), note)
            }
        };
        Explained { reconciled: breakdown.reconcile(sum), gpu, note }
    });
    Ok(explained.collect())
}

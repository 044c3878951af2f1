//! `cachealloc explain`: where the GPU memory of a process is, so that it adds up to what nvidia-smi shows.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use cachealloc_statistics::account::{Account, HOST};
use cachealloc_statistics::orders::Order;
use clap::Args;

use super::Result;
use super::nvml::{self, used_gpus};
use super::orders::{Ordered, patience};
use crate::failure::Failure;
use crate::processes::Process;
use crate::show::account::{self, Explained};
use crate::snapshots;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Show where the GPU memory of a program is, down to the number of nvidia-smi.
///
/// Rows for what the cache holds, what the driver serves itself, graphs and the context; what no call tells apart is the
/// rest. Each row says how it is known: counted from the calls of the program, asked of the driver, or as a difference of
/// what is in use on the device. The program is not stopped.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc explain 4711           a running program, as NVML counts it
  cachealloc explain app.pickle     the same from a snapshot: it adds up to all that was in use on the device")]
pub(crate) struct Arguments {
    /// A process under the library, or a snapshot.
    #[arg(value_name = "PID|FILE")]
    what: String,
    /// Only this device, by its number in the program.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..64))]
    device: Option<i32>,
    /// How long to wait for the program.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
    /// Print JSON, as docs/schema.json says.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { what, device, timeout, json } = arguments;
    let mut explained = match what.parse() {
        Ok(process) => of_process(Process(process), patience(timeout))?,
        Err(_) => of_file(Path::new(&what))?,
    };
    explained.retain(|it| device.is_none_or(|device| it.settled.device == device));
    if explained.is_empty() {
        let of = device.map(|device| format!(" on device {device}")).unwrap_or_default();
        return Err(Failure::new(format!("{what} has no GPU memory{of}")));
    }
    super::print(&if json { account::json(&explained) } else { account::text(&explained) })?;
    Ok(ExitCode::SUCCESS)
}

fn of_file(path: &Path) -> Result<Vec<Explained>> {
    let snapshot = snapshots::read(path)?;
    let accounts = cachealloc_analysis::accounts(&snapshot);
    if accounts.is_empty() && snapshot.is_ours() {
        let what = format!("{} does not say what was in use beside allocations", path.display());
        return Err(Failure::new(what).next("a snapshot that the program itself wrote does"));
    }
    let settled = accounts.iter().map(|account| account.settle(None));
    Ok(settled.map(|settled| Explained { settled, gpu: None, note: None }).collect())
}

fn of_process(process: Process, patience: Duration) -> Result<Vec<Explained>> {
    let ordered = Ordered::of(process, patience)?;
    ordered.give(Order::Measure, "the driver was not asked")?;
    let asked = ordered.statistics()?.measures.asked;
    let statistics = loop {
        let statistics = ordered.statistics()?;
        let is_done = statistics.measures.done.wrapping_sub(asked) as i32 >= 0;
        // While something captures, the driver is not asked: then that is not known.
        if is_done || Instant::now() >= ordered.deadline {
            break statistics;
        }
        thread::sleep(LOOK_EVERY);
    };
    let uuid_of = |device: i32| statistics.gpu(device).and_then(|gpu| gpu.uuid.clone());
    let accounts: Vec<Account> =
        statistics.accounts.iter().flatten().map(|said| said.account()).collect();
    let uuids = accounts.iter().filter_map(|account| uuid_of(account.device)).collect();
    let used = used_gpus(uuids);
    let explained = accounts.iter().map(|account| {
        let gpu = uuid_of(account.device);
        let used = used.iter().find(|used| Some(&used.uuid) == gpu.as_ref());
        let (sum, note) = match used {
            _ if account.device == HOST => (None, None),
            None => (None, Some("NVML does not know the device: other processes count as well")),
            Some(used) => {
                let (said, note) = nvml::of_process(used, process.0);
                let in_use_bytes = account.in_use_bytes.or(Some(used.in_use_bytes));
                (said.and_then(|said| said.sum(in_use_bytes)), note)
            }
        };
        Explained { settled: account.settle(sum), gpu, note }
    });
    Ok(explained.collect())
}

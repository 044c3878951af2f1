//! `cachealloc explain`: where the GPU memory of a process is, so that it adds up to what nvidia-smi shows.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cachealloc_statistics::account::{Account, HOST, Sum};
use cachealloc_statistics::orders::Order;
use clap::Args;

use super::Result;
use super::orders::{Ordered, patience};
use crate::failure::Failure;
use crate::kernel::libraries::{UsedGpu, Watcher};
use crate::processes::Process;
use crate::show::account::{self, Explained};
use crate::snapshots;

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// NVML's first answer takes as long as the driver takes to wake up.
const NVML_PATIENCE: Duration = Duration::from_secs(2);

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
            Some(used) => sum(account, used, process.0),
        };
        Explained { settled: account.settle(sum), gpu, note }
    });
    Ok(explained.collect())
}

/// What the rows add up to, and why it is not what NVML says of the process.
fn sum(account: &Account, used: &UsedGpu, process: u32) -> (Option<Sum>, Option<&'static str>) {
    let is_own = |number: u32| number == process;
    // A process that is alone must be ours, by whatever number: of a namespace that NVML does not know.
    let own = match &used.processes[..] {
        [only] => Some(only),
        all => all.iter().find(|(number, _)| is_own(*number)),
    };
    let Some((number, bytes)) = own else {
        return (None, Some("NVML does not list the process here: other processes count as well"));
    };
    if let Some(bytes) = bytes {
        return (Some(Sum::Process(*bytes)), None);
    }
    let others = used.processes.iter().filter(|(other, _)| other != number);
    let others: Option<u64> = others.map(|(_, bytes)| *bytes).sum();
    let in_use_bytes = account.in_use_bytes.unwrap_or(used.in_use_bytes);
    match others.and_then(|others| in_use_bytes.checked_sub(others)) {
        Some(own) => (Some(Sum::LessOthers(own)), Some("NVML does not say what the process has")),
        None => (None, Some("NVML does not say what each process has: all count")),
    }
}

/// What NVML says of these GPUs; nothing where it does not answer in time.
fn used_gpus(uuids: Vec<String>) -> Vec<UsedGpu> {
    let (sender, answers) = channel();
    thread::spawn(move || {
        let watcher = Watcher::start();
        let used = |uuid: &String| watcher.as_ref()?.used(uuid);
        let _ = sender.send(uuids.iter().filter_map(used).collect());
    });
    answers.recv_timeout(NVML_PATIENCE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn sum_is(processes: &[(u32, Option<u64>)], wanted: Option<Sum>) {
        let account = Account { in_use_bytes: Some(100), ..Account::new(0) };
        let used =
            UsedGpu { uuid: String::new(), in_use_bytes: 110, processes: processes.to_vec() };
        let (found, note) = sum(&account, &used, 7);
        assert_eq!(found, wanted);
        assert_eq!(note.is_none(), matches!(wanted, Some(Sum::Process(_))));
    }

    #[test]
    fn which_process_is_ours() {
        sum_is(&[(3, Some(1)), (7, Some(2))], Some(Sum::Process(2)));
        // By another number, but alone.
        sum_is(&[(3, Some(1))], Some(Sum::Process(1)));
        sum_is(&[(3, None)], Some(Sum::LessOthers(100)));
        sum_is(&[(3, Some(30)), (7, None)], Some(Sum::LessOthers(70)));
        sum_is(&[(3, Some(300)), (7, None)], None);
        sum_is(&[(3, None), (7, None)], None);
        // It may be any of them, or another.
        sum_is(&[(3, Some(1)), (4, Some(2))], None);
        sum_is(&[], None);
    }
}

//! `cachealloc snapshot`: makes a running program write a snapshot, and prints the file's name.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cachealloc_statistics::control::ControlCommand;
use cachealloc_text::plain;
use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Result;
use crate::failure::Failure;
use crate::live::nvml::{self, used_gpus};
use crate::live::{self, Live, Problem, Statistics};
use crate::processes::{Disposition, Process, number};
use crate::progress::Progress;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Write a snapshot of a running program.
///
/// The program writes the file while it continues to run; the command waits for it and prints its
/// name. If the program is recording, the snapshot contains the history, otherwise only the current
/// memory.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Process under the library.
    #[arg(value_name = "PID", value_parser = number)]
    process: u32,
    /// Time to wait for the file.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let file = take(Process(arguments.process), Duration::from_secs(arguments.timeout))?;
    let name = file.display().to_string();
    // The name of an existing file goes to scripts unescaped.
    let is_for_eyes = std::io::stdout().is_terminal() || !file.exists();
    let name = if is_for_eyes { plain(&name) } else { name.as_str().into() };
    super::print(&format!("{name}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the process write a snapshot, and waits for it. Returns the file.
pub(crate) fn take(process: Process, limit: Duration) -> Result<PathBuf> {
    let explain = |problem: Problem| live::explain(process, &problem);
    let live = Live::of(process).map_err(explain)?;
    let begun = Instant::now();
    let before = live.statistics(false, limit).map_err(explain)?;
    let signal = usable_signal(process, before.snapshots.signal)?;
    note_nvml(&live, &before, begun + limit);
    let before = before.snapshots;
    send(process, signal)?;
    let mut waiting = Progress::waiting(&format!("waiting for process {}", process.0));
    loop {
        waiting.tick();
        let left = limit.checked_sub(begun.elapsed()).ok_or_else(|| late(process, limit))?;
        let now = match live.statistics(false, left) {
            Err(Problem::Silent) => return Err(late(process, limit)),
            answer => answer.map_err(explain)?.snapshots,
        };
        if now.written != before.written
            && let Some(file) = now.last
        {
            return Ok(seen_from_here(process, file.into()));
        }
        if now.failed != before.failed {
            let why = now.last_problem.unwrap_or_default();
            let what = format!("process {} could not write the snapshot: {why}", process.0);
            return Err(Failure::new(what).next("choose another file with its option snapshot"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Sends the program NVML's number for it, to be included in the snapshot. Otherwise the snapshot
/// contains the memory in use by all processes: if NVML does not report the number, or if the
/// program accepts no control commands or has an older library without this one.
fn note_nvml(live: &Live, statistics: &Statistics, deadline: Instant) {
    let gpus = || statistics.gpus.iter().filter_map(|gpu| Some((gpu.device, gpu.uuid.clone()?)));
    let used = match gpus().next() {
        None => return,
        Some(_) => used_gpus(gpus().map(|(_, uuid)| uuid).collect()),
    };
    for (device, uuid) in gpus() {
        let used = used.iter().find(|used| used.uuid == uuid);
        let nvml_reading = used.and_then(|used| nvml::of_process(used, live.process.0).0);
        if let Some(nvml_reading) = nvml_reading {
            let _ = live.order(ControlCommand::Note { device, nvml_reading }, deadline);
        }
    }
}

/// Returns the signal that requests a snapshot, if sending it has no other effect.
fn usable_signal(process: Process, number: Option<i32>) -> Result<Signal> {
    let Process(id) = process;
    let Some(signal) = number.and_then(|number| Signal::try_from(number).ok()) else {
        return Err(Failure::new(format!("process {id} runs with signal:off"))
            .next("start it without that option, or call cachealloc_snapshot in the program"));
    };
    let problem = match process.disposition(signal as i32) {
        Some(Disposition::Caught) if process.blocks(signal as i32) => "blocks",
        Some(Disposition::Caught) => return Ok(signal),
        Some(Disposition::Ignored) => "ignores",
        // The signal would end the process.
        Some(Disposition::Default) => "no longer handles",
        None => return Err(live::explain(process, &Problem::Ended)),
    };
    Err(Failure::new(format!("process {id} {problem} {signal}, which requests snapshots"))
        .next("start it with another signal: cachealloc run --signal USR2 -- ./app"))
}

fn send(process: Process, signal: Signal) -> Result<()> {
    let Process(id) = process;
    kill(Pid::from_raw(id as i32), signal).map_err(|error| match error {
        Errno::EPERM => Failure::new(format!("process {id} belongs to another user"))
            .next("run the command as that user"),
        Errno::ESRCH => live::explain(process, &Problem::Ended),
        other => Failure::new(format!("cannot send {signal} to process {id}: {other}")),
    })
}

fn late(process: Process, limit: Duration) -> Failure {
    if process.is_stopped() {
        return live::explain(process, &Problem::Silent);
    }
    Failure::new(format!("process {} wrote no snapshot in {} s", process.0, limit.as_secs()))
        .next("it may follow later: wait longer with --timeout")
}

/// Translates a path of the process, which may have another root in a container.
fn seen_from_here(process: Process, file: PathBuf) -> PathBuf {
    let inside = process.folder().join("root").join(file.strip_prefix("/").unwrap_or(&file));
    if !Path::new(&file).exists() && inside.exists() { inside } else { file }
}

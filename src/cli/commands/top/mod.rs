//! `cachealloc top`: the programs under the library, on a terminal as an interactive screen
//! (`screen`), elsewhere as a table.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cachealloc_text::escaped;
use clap::Args;
use serde_json::Value;

use super::Result;
use crate::failure::{Failure, USAGE};
use crate::processes::{Process, number};
use crate::show;

mod gpus;
mod lines;
mod rates;
mod samples;
mod screen;
mod tables;

use gpus::{Monitor, Only};
use rates::Rates;
use samples::{Asker, Sample};

/// Timeout for all processes together. A process that is writing a snapshot may miss it and is left
/// out of one table.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time between the two readings that the rates of a single table need, and the timeout of the
/// first.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
const INTERVAL_RANGE: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Monitor the programs under the library: all of this user, or one.
///
/// On a terminal, shows a screen that is updated every second until q is pressed; otherwise, or
/// with --once, prints a table. No program is stopped. For one program (Enter, or PID), shows the
/// call sites that hold memory, if the program is recording (cachealloc run --record).
#[derive(Args)]
#[command(after_help = "\
On the screen:
  up, down, j, k, PgUp, PgDn, Home, End   choose a line
  Enter, Esc                              show a program's call sites and stacks, and return
  left, right                             scroll the stack
  s, S, r                                 sort by the next or previous column, or reverse the order
  /                                       filter by text; Enter keeps the filter, Esc clears it
  ?, h, F1                                explain the keys and columns
  q, Ctrl-C                               quit")]
pub(crate) struct Arguments {
    /// Show only this process, in detail.
    #[arg(value_name = "PID", value_parser = number)]
    process: Option<u32>,
    /// Show only these GPUs: by nvidia-smi's number (0; 0:1 is a MIG instance), by the beginning of
    /// a UUID (GPU-3a, MIG-7), or by PCI address (01:00.0).
    #[arg(long, value_name = "GPU", value_delimiter = ',')]
    gpu: Vec<String>,
    /// Print one table, even on a terminal.
    #[arg(long, conflicts_with = "interval")]
    once: bool,
    /// Print JSON: a list of all processes, one line for each interval.
    #[arg(long)]
    json: bool,
    /// Maximum rows of a table.
    #[arg(short = 'n', long = "rows", value_name = "N")]
    rows: Option<usize>,
    /// Time between updates; applies even if stdout is not a terminal.
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { process, gpu, once, json, rows, interval } = arguments;
    if interval.is_some_and(|interval| !INTERVAL_RANGE.contains(&interval)) {
        let what = "--interval must be a number of seconds from 0.1 to 3600";
        return Err(Failure::new(what).code(USAGE));
    }
    let process = process.map(Process);
    let on_screen = !once && !json && has_screen();
    let signals = on_screen.then(screen::block_signals);
    let mut monitor = Monitor::start();
    let only = if gpu.is_empty() { Only::default() } else { Only::new(gpu, &monitor.look())? };
    let asker = Asker { process, only, monitor };
    let again = interval.map(Duration::from_secs_f64);
    match signals {
        None => print_tables(asker, json, rows, again),
        Some(signals) => {
            let interval = again.unwrap_or(INTERVAL_DEFAULT);
            screen::run(asker, signals, interval, rows)
        }
    }
}

/// Returns whether stdout has a screen: a dumb terminal cannot position text.
fn has_screen() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|it| it != "dumb")
}

fn print_tables(
    mut asker: Asker,
    json: bool,
    rows: Option<usize>,
    again: Option<Duration>,
) -> Result {
    let mut rates = Rates::default();
    if !json && again.is_none() {
        let begun = Instant::now();
        rates.note(&asker.look(None, BETWEEN_LOOKS)?.samples);
        std::thread::sleep(BETWEEN_LOOKS.saturating_sub(begun.elapsed()));
    }
    let mut first = true;
    loop {
        let look = match asker.look(None, TIMEOUT) {
            // The process existed at first and has ended since.
            Err(_) if !first && asker.process.is_some_and(Process::has_ended) => break,
            look => look?,
        };
        let text = match (json, asker.process) {
            (true, _) => list(&look.samples),
            (false, None) => tables::all(&look, &rates, rows.unwrap_or(usize::MAX)),
            (false, Some(_)) => tables::one(&look, &rates, rows),
        };
        rates.note(&look.samples);
        super::print(&text)?;
        let Some(interval) = again else { break };
        first = false;
        std::thread::sleep(interval);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the statistics of the processes as JSON, with the command of each.
fn list(samples: &[Sample]) -> String {
    let objects = samples.iter().map(|sample| {
        let mut object = show::json_with_places(&sample.json, &sample.statistics);
        let command = sample.command.clone().into();
        object.as_object_mut().map(|object| object.insert("command".to_string(), command));
        object
    });
    escaped(&format!("{}\n", Value::Array(objects.collect()))).into_owned()
}

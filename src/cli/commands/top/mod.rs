//! `cachealloc top`: a table of what runs under the library, again and again on a terminal.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cachealloc_text::escaped;
use clap::Args;
use serde_json::Value;

use super::{Result, stats};
use crate::failure::{Failure, USAGE};
use crate::live::{self, Live, Statistics};
use crate::processes::Process;

mod rates;
mod screen;
mod tables;

use rates::Rates;

/// A process that is writing a snapshot is left out of one table. The time for all together.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between the two readings that the rates of a single table need; and the longest time of the first.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
const INTERVAL_DEFAULT: f64 = 1.0;
const INTERVAL_RANGE: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Show the programs under the library: all of this user, or one.
///
/// On a terminal the table is updated every second until Ctrl-C; elsewhere it is printed once. No
/// program is stopped. For one program it shows the libraries and call sites that hold memory, if
/// something is recorded (cachealloc run --record).
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only this process, in detail.
    #[arg(value_name = "PID")]
    process: Option<u32>,
    /// JSON, a list of all processes; a line for each interval.
    #[arg(long)]
    json: bool,
    /// The most rows of a table.
    #[arg(short = 'n', long = "rows", value_name = "N")]
    rows: Option<usize>,
    /// Update the table this often, even if stdout is no terminal.
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
}

/// The statistics of one process, and their time.
pub(crate) struct Sample {
    pub process: Process,
    pub command: String,
    pub time: Instant,
    pub statistics: Statistics,
    json: String,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { process, json, rows, interval } = arguments;
    if interval.is_some_and(|interval| !INTERVAL_RANGE.contains(&interval)) {
        let what = "--interval is a number of seconds from 0.1 to 3600";
        return Err(Failure::new(what).code(USAGE));
    }
    let on_terminal = std::io::stdout().is_terminal() && !json;
    let again = interval.or(on_terminal.then_some(INTERVAL_DEFAULT)).map(Duration::from_secs_f64);
    let mut rates = Rates::default();
    if !json && again.is_none() {
        let begun = Instant::now();
        rates.note(&sample(process, BETWEEN_LOOKS)?.0);
        std::thread::sleep(BETWEEN_LOOKS.saturating_sub(begun.elapsed()));
    }
    let mut first = true;
    loop {
        let samples = match sample(process, PATIENCE) {
            // It was there, and has come to its end.
            Err(_) if !first && process.is_some_and(|id| Process(id).has_ended()) => break,
            samples => samples?,
        };
        let (samples, silent) = samples;
        let text = match (json, process) {
            (true, _) => list(&samples),
            (false, None) => tables::all(&samples, &silent, &rates, rows.unwrap_or(usize::MAX)),
            (false, Some(_)) => tables::one(&samples[0], &rates, rows),
        };
        rates.note(&samples);
        match on_terminal {
            true => screen::show(&text)?,
            false => super::print(&text)?,
        }
        let Some(interval) = again else { break };
        first = false;
        std::thread::sleep(interval);
    }
    Ok(ExitCode::SUCCESS)
}

/// Their statistics, and which do not respond in time. A named one is waited for as in `stats`.
fn sample(process: Option<u32>, patience: Duration) -> Result<(Vec<Sample>, Vec<Process>)> {
    let Some(process) = process.map(Process) else { return Ok(sample_all(patience)) };
    let json = Live::of(process).and_then(|live| Ok((live.ask(true, stats::PATIENCE)?, live)));
    let sample = json.and_then(|(json, live)| understand(&live, json));
    sample
        .map(|sample| (vec![sample], Vec::new()))
        .map_err(|problem| live::explain(process, &problem))
}

/// Sends all requests before it waits for any.
fn sample_all(patience: Duration) -> (Vec<Sample>, Vec<Process>) {
    let deadline = Instant::now() + patience;
    let all = Live::all();
    let asked: Vec<_> = all.iter().map(|live| (live, live.request(false))).collect();
    let (mut samples, mut silent) = (Vec::new(), Vec::new());
    for (live, request) in asked {
        let json = request.and_then(|request| live.answer(request, deadline));
        match json.and_then(|json| understand(live, json)) {
            Ok(sample) => samples.push(sample),
            Err(live::Problem::Silent) => silent.push(live.process),
            Err(_) => {} // it has just ended
        }
    }
    (samples, silent)
}

fn understand(live: &Live, json: String) -> std::result::Result<Sample, live::Problem> {
    let statistics = live::parse(&json)?;
    let (process, time) = (live.process, Instant::now());
    let sample = Sample { process, command: process.command(), time, statistics, json };
    // Then it has no command any longer, and no place in a table of what runs.
    if live.has_ended() { Err(live::Problem::Ended) } else { Ok(sample) }
}

/// The statistics of the processes, with the command of each.
fn list(samples: &[Sample]) -> String {
    let objects = samples.iter().map(|sample| {
        let mut object: Value = serde_json::from_str(&sample.json).unwrap_or_default();
        object["command"] = sample.command.clone().into();
        object
    });
    escaped(&format!("{}\n", Value::Array(objects.collect()))).into_owned()
}

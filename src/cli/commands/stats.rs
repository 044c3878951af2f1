//! `cachealloc stats`: the statistics of a running program.

use std::process::ExitCode;
use std::time::Duration;

use cachealloc_text::escaped;
use clap::{Args, ValueEnum};

use super::Result;
use crate::failure::{Failure, USAGE};
use crate::live::{self, Live, Problem};
use crate::processes::{Process, number};
use crate::show::{self, Exposition, Scraped};

/// A program responds within milliseconds, unless it is writing a snapshot.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for all processes together; those that do not respond are left out.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(2);

/// Show the statistics of a running program.
///
/// The program is not stopped. The JSON contains all numbers of torch.cuda.memory_stats, under
/// PyTorch's names.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Process under the library; optional for prometheus and openmetrics, whose default is every
    /// process that `top` shows.
    #[arg(value_name = "PID", required_unless_present = "format", value_parser = number)]
    process: Option<u32>,
    /// text: the main numbers. json: all numbers, described in docs/schema.json. prometheus: text
    /// format 0.0.4, for a textfile collector. openmetrics: the same metrics as OpenMetrics text.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Prometheus,
    Openmetrics,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { process, format, json } = arguments;
    let format = format.unwrap_or(if json { Format::Json } else { Format::Text });
    let text = match (process, format) {
        (Some(process), format) => of_one(Process(process), format)?,
        (None, Format::Prometheus) => show::prometheus(&all(), Exposition::Text),
        (None, Format::Openmetrics) => show::prometheus(&all(), Exposition::OpenMetrics),
        (None, _) => {
            let what = "without a PID, --format must be prometheus or openmetrics";
            let failure = Failure::new(what);
            return Err(failure.next("list the processes with: cachealloc top --once").code(USAGE));
        }
    };
    match format {
        Format::Text => super::print_lines(&text)?,
        _ => super::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn of_one(process: Process, format: Format) -> Result<String> {
    let explain = |problem: Problem| live::explain(process, &problem);
    let live = Live::of(process).map_err(explain)?;
    let command = || process.command();
    Ok(match format {
        Format::Text => {
            let statistics = live.statistics(true, TIMEOUT).map_err(explain)?;
            show::process(&statistics, process.0, &command())
        }
        Format::Json => {
            let text = live.ask(true, TIMEOUT).map_err(explain)?;
            // Text that is not JSON must not be printed as JSON.
            let statistics = live::parse(&text).map_err(explain)?;
            let json = show::json_with_places(&text, &statistics);
            escaped(&format!("{json:#}\n")).into_owned()
        }
        Format::Prometheus | Format::Openmetrics => {
            let statistics = live.statistics(true, TIMEOUT).map_err(explain)?;
            let one = Scraped { process: process.0, command: command(), statistics };
            let exposition = match format {
                Format::Openmetrics => Exposition::OpenMetrics,
                _ => Exposition::Text,
            };
            show::prometheus(&[one], exposition)
        }
    })
}

fn all() -> Vec<Scraped> {
    let all = Live::all();
    let answers = Live::ask_all(&all, |_| true, PATIENCE_FOR_ALL);
    let scraped = answers.filter_map(|(live, json)| {
        let statistics = live::parse(&json.ok()?).ok()?;
        let (process, command) = (live.process.0, live.process.command());
        (!live.has_ended()).then_some(Scraped { process, command, statistics })
    });
    scraped.collect()
}

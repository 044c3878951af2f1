//! `cachealloc stats`: the statistics of a running program.

use std::process::ExitCode;
use std::time::Duration;

use cachealloc_text::escaped;
use clap::Args;

use super::Result;
use crate::live::{self, Live, Problem};
use crate::processes::Process;
use crate::show;

/// A program responds within milliseconds, unless it is writing a snapshot.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Show the statistics of a running program.
///
/// The program is not stopped. JSON has all numbers of torch.cuda.memory_stats, by PyTorch's names.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A process under the library.
    #[arg(value_name = "PID")]
    process: u32,
    /// All numbers, as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let process = Process(arguments.process);
    let explain = |problem: Problem| live::explain(process, &problem);
    let live = Live::of(process).map_err(explain)?;
    let text = match arguments.json {
        true => {
            let text = live.ask(true, PATIENCE).map_err(explain)?;
            // Whatever is no JSON is not passed on as such.
            live::parse(&text).map_err(explain)?;
            escaped(&text).into_owned()
        }
        false => {
            let statistics = live.statistics(false, PATIENCE).map_err(explain)?;
            show::process(&statistics, process.0, &process.command())
        }
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

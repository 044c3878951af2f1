//! `cachealloc findings`: the findings of a report, and its numbers that no other command prints.

use std::path::PathBuf;
use std::process::ExitCode;

use cachealloc_analysis::When;
use cachealloc_report::tell;
use clap::Args;

use super::Result;
use super::report::{fit_when, read_grouped};
use super::top_sites::{moment, no_such_time};
use crate::show::findings;

/// Say what a report of these snapshots says first, in sentences, without a browser.
///
/// With the failed allocations and the free memory that did not help, what each pass through a
/// range of the program grew by, since when memory is held that need not be, and the call sites
/// beside free memory that cannot go back to the driver. Several snapshots are told together, as in
/// a report.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc findings app.pickle
  cachealloc findings app.pickle --at oom        and which free memory did not help when an allocation failed last
  cachealloc findings rank*.pickle --json        with each pass through a range, in bytes and microseconds")]
pub(crate) struct Arguments {
    /// Snapshots of several ranks, or of several times, of cachealloc or PyTorch.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Replay histories of any length, to say whether they would fit; otherwise those of up to
    /// 100,000 entries.
    #[arg(long)]
    fit: bool,
    /// The time of the segments and of what lies beside their free pieces: end, peak, oom (the last
    /// failed allocation), a time since the first entry (2.5s, 300ms), or an entry (#1200).
    #[arg(long, value_name = "TIME", value_parser = moment, default_value = "end")]
    at: When,
    /// How many rows of a table to print; 0 for all.
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 20)]
    number: usize,
    /// Print JSON, with all rows and each pass.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let inputs = read_grouped(&arguments.files)?;
    let told = tell(&inputs, fit_when(arguments.fit), arguments.at);
    if !told.devices.is_empty() && told.devices.iter().all(|device| device.inside.is_none()) {
        return Err(no_such_time());
    }
    let number = if arguments.number == 0 { usize::MAX } else { arguments.number };
    super::print(&match arguments.json {
        true => findings::json(&inputs, &told)?,
        false => findings::text(&inputs, &told, arguments.at, number),
    })?;
    Ok(ExitCode::SUCCESS)
}

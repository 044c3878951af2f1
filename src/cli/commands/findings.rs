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

/// Print the findings of a report as text.
///
/// Includes failed allocations and the free memory that could not serve them, the growth of each
/// pass through a range of the program, memory that is held longer than needed, and the call sites
/// whose blocks keep free memory from being released to the driver. Several snapshots are combined
/// as in a report.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc findings app.pickle
  cachealloc findings app.pickle --at oom        and the free memory when an allocation last failed
  cachealloc findings rank*.pickle --json        with each pass through a range")]
pub(crate) struct Arguments {
    /// Snapshots of cachealloc or PyTorch: several ranks, or several times.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Replay histories of any length to find out whether they would fit; default: those of up to
    /// 100,000 entries.
    #[arg(long)]
    fit: bool,
    /// Time at which segments and their free memory are listed: end, peak, oom (the last failed
    /// allocation), a time since the first entry (2.5s, 300ms), or an entry (#1200).
    #[arg(long, value_name = "TIME", value_parser = moment, default_value = "end")]
    at: When,
    /// Number of rows of each table; 0 for all.
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 20)]
    number: usize,
    /// Print JSON, with all rows and every pass.
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
    match arguments.json {
        true => super::print(&findings::json(&inputs, &told)?)?,
        false => super::print_lines(&findings::text(&inputs, &told, arguments.at, number))?,
    }
    Ok(ExitCode::SUCCESS)
}

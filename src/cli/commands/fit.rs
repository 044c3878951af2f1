//! `cachealloc fit`: the smallest device on which a recorded run would complete, and the options it
//! needs.

use std::path::PathBuf;
use std::process::ExitCode;

use cachealloc_fit::{DeviceFit, OptionSet, Question};
use clap::Args;

use super::Result;
use crate::failure::Failure;
use crate::show::fit::{self, Shown};
use crate::{size, snapshots};

/// Find the smallest device on which a recorded run completes.
///
/// Replays the history of a snapshot through the allocator of the library under various options,
/// without a GPU. After a failed allocation, says whether other options would have served it, or
/// else which call sites hold most.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc fit app.pickle                     the smallest limit and device
  cachealloc fit app.pickle --gpu 24G           whether it completes on a device of 24 GiB
  cachealloc fit app.pickle --options expandable_segments:true --options max_split_size_mb:256")]
pub(crate) struct Arguments {
    /// Snapshot of cachealloc or PyTorch, with a history.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Memory of the device to check, such as 80G; default: the memory that was available when the
    /// last request failed, if one did.
    #[arg(long, value_name = "SIZE", value_parser = gpu)]
    gpu: Option<u64>,
    /// Set of options to try, as in CACHEALLOC_CONF; empty for the defaults. May be repeated.
    /// Default: all sets worth trying.
    #[arg(long, value_name = "KEY:VALUE,..", value_parser = options)]
    options: Vec<OptionSet>,
    /// Leave out requests that failed in the recorded run: some programs probe for free memory.
    #[arg(long)]
    without_failed: bool,
    /// Replay only this device.
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Number of call sites to list if it does not fit.
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 5)]
    number: usize,
    /// Print JSON, with whole stacks.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let snapshot = snapshots::read(&arguments.file)?;
    let question = Question {
        sets: &arguments.options,
        device_bytes: arguments.gpu,
        with_failed: !arguments.without_failed,
    };
    let is_wanted = |ordinal| arguments.device.is_none_or(|device| device == ordinal);
    let fits = DeviceFit::all(&snapshot, question, is_wanted);
    if fits.is_empty() {
        let of = arguments.device.map(|device| format!(" of device {device}")).unwrap_or_default();
        let what = format!("{} has no history{of}", arguments.file.display());
        return Err(Failure::new(what).next("start the program with: cachealloc run --record"));
    }
    let shown = Shown { snapshot: &snapshot, fits: &fits, sites_count: arguments.number };
    match arguments.json {
        true => super::print(&fit::json(&shown)?)?,
        false => super::print_lines(&fit::text(&shown))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn gpu(text: &str) -> std::result::Result<u64, String> {
    match size::parse(text) {
        Some(bytes @ 0x10_0000..=0x400_0000_0000) => Ok(bytes),
        Some(_) => Err("at least 1M, at most 4T".into()),
        None => Err(format!("expected {}", size::ALLOWED)),
    }
}

fn options(text: &str) -> std::result::Result<OptionSet, String> {
    OptionSet::parse(text)
}

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

/// Say on how small a device a recorded run would complete, and under which options.
///
/// The history of a snapshot is replayed through the allocator of the library, without a GPU. After
/// a failed allocation the answer is whether other options would have served it, or which call
/// sites hold most.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc fit app.pickle                     the smallest limit and device, under all options worth trying
  cachealloc fit app.pickle --gpu 24G           does it complete on a device of 24 GiB?
  cachealloc fit app.pickle --options expandable_segments:true --options max_split_size_mb:256")]
pub(crate) struct Arguments {
    /// A snapshot with a history, of cachealloc or PyTorch.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The memory of a device, such as 80G: does the run complete there? Without it, what there was
    /// when the last request failed, if one did.
    #[arg(long, value_name = "SIZE", value_parser = gpu)]
    gpu: Option<u64>,
    /// Options to try, as in CACHEALLOC_CONF; several times for several sets, empty for the
    /// defaults. Without it, all sets worth trying.
    #[arg(long, value_name = "KEY:VALUE,..", value_parser = options)]
    options: Vec<OptionSet>,
    /// Leave out requests that failed in the recorded run: some programs ask to see what there is.
    #[arg(long)]
    without_failed: bool,
    /// Only this device.
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// How many call sites to list where it does not fit.
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
    super::print(&if arguments.json { fit::json(&shown)? } else { fit::text(&shown) })?;
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

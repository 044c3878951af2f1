//! `cachealloc convert`: writes a snapshot in the format of another tool.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::{SiteKey, When, formats};
use clap::{Args, ValueEnum};

use super::Result;
use super::top_sites::{SortKey, moment, order};
use crate::failure::{Failure, USAGE};
use crate::{output, snapshots};

/// Convert a snapshot to the format of another tool.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A snapshot of cachealloc or PyTorch.
    file: PathBuf,
    /// folded: stacks for flamegraph.pl and inferno. speedscope: https://www.speedscope.app.
    /// perfetto: a trace for https://ui.perfetto.dev. pprof: a profile for `go tool pprof` and
    /// compatible tools. json: the whole snapshot, for scripts.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Output file; default: stdout.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Weight of a stack, as in top-sites; with --to folded only.
    #[arg(long, value_enum)]
    by: Option<SortKey>,
    /// Time of the weights, as in top-sites; with --to folded only.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<When>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Folded,
    Speedscope,
    Perfetto,
    Pprof,
    Json,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let weights = order(arguments.by, arguments.at)?;
    if arguments.to != Format::Folded && (arguments.by.is_some() || arguments.at.is_some()) {
        let failure = Failure::new("--by and --at apply to --to folded only");
        return Err(failure.next("omit them").code(USAGE));
    }
    let is_binary = matches!(arguments.to, Format::Perfetto | Format::Pprof);
    if is_binary && arguments.output.is_none() && io::stdout().is_terminal() {
        let failure = Failure::new("cannot print a binary profile on a terminal");
        return Err(failure.next("name a file with -o").code(USAGE));
    }
    let snapshot = snapshots::read(&arguments.file)?;
    let name = arguments.file.file_name().unwrap_or_default().to_string_lossy();
    match &arguments.output {
        None => output::to_stdout(|out| write(&snapshot, arguments.to, weights, &name, out))?,
        Some(path) => {
            output::write(path, |out| write(&snapshot, arguments.to, weights, &name, out))?
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(
    snapshot: &Snapshot,
    format: Format,
    (by, at): (SiteKey, When),
    name: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Folded => formats::folded(snapshot, by, at, out),
        Format::Speedscope => formats::speedscope(snapshot, name, out),
        Format::Perfetto => formats::perfetto(snapshot, out),
        Format::Pprof => formats::pprof(snapshot, out),
        Format::Json => formats::json(snapshot, out),
    }
}

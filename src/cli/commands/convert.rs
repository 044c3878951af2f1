//! `cachealloc convert`: a snapshot as another tool reads it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::{By, When, export};
use clap::{Args, ValueEnum};

use super::Result;
use super::top_sites::{Order, moment, order};
use crate::failure::{Failure, USAGE};
use crate::snapshots;

/// Write a snapshot in the format of another tool.
#[derive(Args)]
pub struct Arguments {
    /// A snapshot, our own or PyTorch's.
    file: PathBuf,
    /// folded: stacks for flamegraph.pl and inferno. speedscope: https://www.speedscope.app. perfetto:
    /// Chrome's trace events, for https://ui.perfetto.dev. json: all that the snapshot says, for scripts.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Where to write; without it to stdout.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// folded: what a stack weighs, as in top-sites.
    #[arg(long, value_enum)]
    by: Option<Order>,
    /// folded: when what is held is asked for, as in top-sites.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<When>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Folded,
    Speedscope,
    Perfetto,
    Json,
}

pub fn run(arguments: Arguments) -> Result {
    let weights = order(arguments.by, arguments.at)?;
    if arguments.to != Format::Folded && (arguments.by.is_some() || arguments.at.is_some()) {
        let failure = Failure::new("--by and --at are for --to folded: the other formats hold all");
        return Err(failure.next("leave them out").code(USAGE));
    }
    let snapshot = snapshots::read(&arguments.file)?;
    let name = arguments.file.file_name().unwrap_or_default().to_string_lossy();
    match &arguments.output {
        None => to_stdout(|out| write(&snapshot, arguments.to, weights, &name, out))?,
        Some(path) => to_file(path, |out| write(&snapshot, arguments.to, weights, &name, out))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write(
    snapshot: &Snapshot,
    format: Format,
    (by, at): (By, When),
    name: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Folded => export::folded(snapshot, by, at, out),
        Format::Speedscope => export::speedscope(snapshot, name, out),
        Format::Perfetto => export::perfetto(snapshot, out),
        Format::Json => export::json(snapshot, out),
    }
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("stdout cannot be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let problem = |error| Failure::new(format!("{} cannot be written: {error}", path.display()));
    let mut out = BufWriter::new(File::create(path).map_err(problem)?);
    write(&mut out).and_then(|()| out.flush()).map_err(problem)
}

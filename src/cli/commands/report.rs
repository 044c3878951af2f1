//! `cachealloc report`: one HTML file from snapshots.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_report::Input;
use clap::Args;

use super::Result;
use crate::failure::say;
use crate::{output, snapshots};

/// Make one self-contained HTML file from snapshots.
///
/// The snapshots may be of cachealloc or PyTorch. Several are shown together: ranks of one run are added
/// up, snapshots of one process are compared.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Snapshots of several ranks, or of several times.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The output file; - for stdout. Default: the first free of cachealloc.html, cachealloc-1.html,
    /// cachealloc-2.html, ...
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    match arguments.output {
        Some(path) => write(&arguments.files, &path)?,
        None => write_new(&arguments.files)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that was not named is never replaced.
fn write_new(files: &[PathBuf]) -> Result<()> {
    let inputs = files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let first = PathBuf::from(format!("{NAME}.html"));
    let others = (1..).map(|number: u32| PathBuf::from(format!("{NAME}-{number}.html")));
    let names = std::iter::once(first.clone()).chain(others);
    let path = output::write_new(names, |mut out| cachealloc_report::write(&inputs, &mut out))?;
    if path != first {
        let (path, first) = (path.display(), first.display());
        say(format_args!("report: {path} ({first} is there already)"));
    }
    Ok(())
}

const NAME: &str = "cachealloc";

/// Also for `run --report`, when the program has ended.
pub(crate) fn write(files: &[PathBuf], path: &Path) -> Result<()> {
    let inputs = files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    output::write(path, |mut out| cachealloc_report::write(&inputs, &mut out))
}

fn read(path: &Path) -> Result<Input> {
    let snapshot = snapshots::read(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Input { name, snapshot })
}

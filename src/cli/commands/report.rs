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
/// The snapshots may be our own or PyTorch's. Several are shown together: the ranks of one run are added
/// up, moments of one process are compared.
#[derive(Args)]
pub struct Arguments {
    /// Snapshots: of several ranks, or of several moments.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The file to write; - for stdout. Without it cachealloc.html, or where that is there already the first
    /// free one of cachealloc-1.html, cachealloc-2.html, ...
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result {
    match arguments.output {
        Some(path) => write(&arguments.files, &path)?,
        None => write_new(&arguments.files)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing is replaced that nobody has named.
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
pub fn write(files: &[PathBuf], path: &Path) -> Result<()> {
    let inputs = files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    output::write(path, |mut out| cachealloc_report::write(&inputs, &mut out))
}

fn read(path: &Path) -> Result<Input> {
    let snapshot = snapshots::read(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Input { name, snapshot })
}

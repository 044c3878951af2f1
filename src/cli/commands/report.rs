//! `cachealloc report`: one HTML file from snapshots.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_report::Input;
use clap::Args;

use super::Result;
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
    /// The file to write; - for stdout.
    #[arg(short, long, value_name = "FILE", default_value = "cachealloc.html")]
    output: PathBuf,
}

pub fn run(arguments: Arguments) -> Result {
    write(&arguments.files, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

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

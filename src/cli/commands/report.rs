//! `cachealloc report`: one HTML file from snapshots.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachealloc_report::Input;
use clap::Args;

use super::Result;
use crate::failure::Failure;
use crate::snapshots;

/// Make one self-contained HTML file from snapshots.
///
/// The snapshots may be our own or PyTorch's. Several are shown together: the ranks of one run are added
/// up, moments of one process are compared.
#[derive(Args)]
pub struct Arguments {
    /// Snapshots: of several ranks, or of several moments.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "cachealloc.html")]
    output: PathBuf,
}

pub fn run(arguments: Arguments) -> Result {
    write(&arguments.files, &arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Also for `run --report`, when the program has ended.
pub fn write(files: &[PathBuf], output: &Path) -> Result<()> {
    let inputs = files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let problem = |error| Failure::new(format!("{} cannot be written: {error}", output.display()));
    let file = File::create(output).map_err(problem)?;
    let mut out = BufWriter::new(file);
    cachealloc_report::write(&inputs, &mut out).map_err(problem)?;
    out.flush().map_err(problem)
}

fn read(path: &Path) -> Result<Input> {
    let snapshot = snapshots::read(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Input { name, snapshot })
}

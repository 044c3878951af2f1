//! `cachealloc report`: one HTML file from snapshots.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::Result;
use crate::failure::Failure;

/// Make one self-contained HTML file from snapshots.
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
    let problem = format!("there is no report yet: {} of {files:?}", output.display());
    Err(Failure::new(problem).next("open the snapshots at https://pytorch.org/memory_viz"))
}

//! One file for each subcommand: its arguments, and a function `run` that returns the exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::Failure;

pub mod completions;
pub mod convert;
pub mod diff;
pub mod limit;
pub mod man;
pub mod orders;
pub mod record;
pub mod recover;
pub mod report;
pub mod run;
pub mod snapshot;
pub mod stats;
pub mod top;
pub mod top_sites;
pub mod trim;

/// The result of a subcommand.
pub type Result<T = ExitCode> = std::result::Result<T, Failure>;

/// Prints complete, harmless text: JSON, tables. A reader that stops early (`| head`) is no failure.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

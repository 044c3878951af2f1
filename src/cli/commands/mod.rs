//! One file for each subcommand: its arguments, and a function `run` that returns the exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::show;

pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod findings;
pub(crate) mod fit;
pub(crate) mod man;
pub(crate) mod options;
pub(crate) mod recover;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod top_sites;
/// Result of a subcommand.
pub(crate) type Result<T = ExitCode> = std::result::Result<T, Failure>;

/// Prints text for people, in lines that fit the terminal, if stdout is one.
pub(crate) fn print_lines(text: &str) -> Result<()> {
    print(&show::wrapped_for_terminal(text))
}

/// Prints complete text that needs no escaping: JSON or tables. A reader that stops early (`|
/// head`) is not a failure.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

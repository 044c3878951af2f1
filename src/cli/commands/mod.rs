//! One file for each subcommand: its arguments, and a function `run` that answers the exit code.

use std::process::ExitCode;

use crate::failure::Failure;

pub mod report;

/// What a subcommand comes to.
pub type Result<T = ExitCode> = std::result::Result<T, Failure>;

//! The command line: help, completions and the man page come from these definitions as well.

use clap::{Parser, Subcommand};

use crate::commands::{Result, report};

/// Run CUDA programs under a caching allocator, and see what they do with GPU memory.
#[derive(Parser)]
#[command(name = "cachealloc", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// A new subcommand is a variant here, a line in `run`, and a file in `commands`.
#[derive(Subcommand)]
pub enum Command {
    Report(report::Arguments),
}

impl Command {
    pub fn run(self) -> Result {
        match self {
            Command::Report(arguments) => report::run(arguments),
        }
    }
}

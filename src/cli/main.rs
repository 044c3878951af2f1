//! The `cachealloc` command. It links nothing of the preloaded library: what both know is in
//! `cachealloc-core` (the options, the live file) and in snapshots.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod arguments;

mod commands;

// Used by the subcommands that come next.
#[allow(dead_code)]
mod failure;
#[allow(dead_code)]
mod progress;

fn main() -> ExitCode {
    match arguments::Arguments::parse().command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

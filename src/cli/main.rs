//! The `cachealloc` command. It links nothing of the preloaded library: what both know is in
//! `cachealloc-core` (the options, the live file) and in snapshots.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod arguments;

mod commands;

mod launch;
mod leftover;
mod live;
mod show;

mod failure;
mod output;
mod processes;
mod progress;
mod snapshots;

#[allow(unsafe_code)]
mod kernel;

fn main() -> ExitCode {
    match arguments::Arguments::parse().command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

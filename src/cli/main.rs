//! The `cachealloc` command. It does not link the preloaded library: they share the options, the
//! layout of the live file (`statistics`) and snapshots.
#![warn(unreachable_pub)]
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod arguments;

mod commands;

mod doctor;
mod launch;
mod live;
mod manual;
mod orphans;
mod show;

mod failure;
mod output;
mod processes;
mod progress;
mod size;
mod snapshots;

#[allow(unsafe_code)]
mod kernel;

fn main() -> ExitCode {
    match arguments::Arguments::parse().command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

//! `cachealloc man`: the manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};

use super::Result;
use crate::failure::Failure;

/// Print the manual page, or write those of all subcommands.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Write a page for each subcommand into this folder.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let command = crate::arguments::Arguments::command().disable_help_subcommand(true);
    match arguments.folder {
        Some(folder) => clap_mangen::generate_to(command, &folder).map_err(|error| {
            Failure::new(format!("cannot write manual pages to {}: {error}", folder.display()))
                .next("give a writable folder")
        })?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command)
                .render(&mut page)
                .map_err(|error| Failure::new(format!("cannot write a manual page: {error}")))?;
            super::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

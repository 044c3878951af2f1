//! `cachealloc man`: the manual pages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};

use super::Result;
use crate::failure::Failure;
use crate::manual;

/// Print the manual page, or write all manual pages to a folder.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder for the pages of all subcommands.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let pages = manual::pages(crate::arguments::Arguments::command());
    let Some(folder) = arguments.folder else {
        super::print(&pages[0].text)?;
        return Ok(ExitCode::SUCCESS);
    };
    for page in pages {
        fs::write(folder.join(page.file_name()), page.text).map_err(|error| {
            Failure::new(format!("cannot write manual pages to {}: {error}", folder.display()))
                .next("name a writable folder")
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

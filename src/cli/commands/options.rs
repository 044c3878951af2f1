//! `cachealloc options`: the options of the library, all or those about one word.

use std::process::ExitCode;

use cachealloc_options::{help, help_on, nearest_key, of_others};
use clap::Args;

use super::Result;
use crate::failure::Failure;

/// List the options of the library: all, or those that contain a word.
///
/// Set them in CACHEALLOC_CONF as key:value,key:value, or as flags of `cachealloc run`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc options                      all options
  cachealloc options limit                options about limits
  cachealloc options --free-mode          one option, as a flag of `cachealloc run`
  cachealloc options PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64
                                          equivalents of another allocator's options")]
pub(crate) struct Arguments {
    /// Word in the name, the meaning or the values of an option.
    #[arg(value_name = "WORD", allow_hyphen_values = true)]
    word: Option<String>,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let text = match &arguments.word {
        None => help(),
        Some(word) => {
            // The word is a variable of another allocator, alone or with its value.
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let line = of_others(name, value).map(|line| format!("{line}\n"));
            line.or_else(|| help_on(word)).ok_or_else(|| none_about(word))?
        }
    };
    super::print_lines(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn none_about(word: &str) -> Failure {
    let failure = Failure::new(format!("no option contains {word:?}"));
    match nearest_key(word) {
        Some(nearest) => failure.next(format!("did you mean {nearest}?")),
        None => failure.next("list all options with: cachealloc options"),
    }
}

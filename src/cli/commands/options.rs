//! `cachealloc options`: the options of the library, all or those about one word.

use std::process::ExitCode;

use cachealloc_options::{help, help_on, nearest_key, of_others};
use clap::Args;

use super::Result;
use crate::failure::Failure;

/// Print the options of the library: all, or those about a word.
///
/// They stand in CACHEALLOC_CONF as key:value,key:value; `cachealloc run` has each as a flag, too.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc options                      all of them
  cachealloc options limit                those about limits
  cachealloc options --free-mode          one, as `cachealloc run` spells it
  cachealloc options PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64
                                          what of another allocator's variable there is here")]
pub(crate) struct Arguments {
    /// In the name, the meaning or the values of an option.
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
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn none_about(word: &str) -> Failure {
    let failure = Failure::new(format!("no option is about {word:?}"));
    match nearest_key(word) {
        Some(nearest) => failure.next(format!("did you mean {nearest}?")),
        None => failure.next("`cachealloc options` prints all"),
    }
}

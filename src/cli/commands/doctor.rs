//! `cachealloc doctor`: checks whether the library will work on this machine.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use super::Result;
use crate::doctor::{self, Severity};
use crate::failure::FAILED;
use crate::launch::library;

/// Look whether the library will work here, and in a program.
///
/// Each line is one thing that was looked at: ok; note, where the program will run under the
/// library with less or otherwise than might be expected; NO, where it will not. The program is not
/// started. Whether its code opens libraries with `RTLD_DEEPBIND` is looked for in it and the
/// libraries that it is linked with.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc doctor
  cachealloc doctor -- ./app args
  cachealloc doctor -- train.py           a script: its interpreter is looked at")]
pub(crate) struct Arguments {
    /// A program, as a shell finds it, and its arguments.
    #[arg(
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    library: library::Named,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let findings = doctor::examine(arguments.library, &arguments.command);
    let mut text = String::new();
    for finding in &findings {
        text += &finding.line();
        text.push('\n');
    }
    let against = findings.iter().filter(|finding| finding.severity == Severity::Fail).count();
    text += match against {
        0 => "nothing found that stands against it\n",
        _ => "what is marked NO stands against it\n",
    };
    super::print(&text)?;
    Ok(if against == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

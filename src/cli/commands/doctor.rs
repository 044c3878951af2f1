//! `cachealloc doctor`: checks whether the library will work on this machine.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use super::Result;
use crate::doctor::{self, Severity};
use crate::failure::FAILED;
use crate::launch::library;

/// Check whether the library works on this machine and with a program.
///
/// Each line is the result of one check: ok; note, if the library will work with limitations; NO,
/// if it will not work. The program is not started. It and the libraries it is linked with are
/// searched for code that opens libraries with `RTLD_DEEPBIND`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc doctor
  cachealloc doctor -- ./app args
  cachealloc doctor -- train.py           a script: checks its interpreter")]
pub(crate) struct Arguments {
    /// Program, looked up in PATH as by a shell, and its arguments.
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
        0 => "no problems found\n",
        _ => "fix the problems marked NO\n",
    };
    super::print_lines(&text)?;
    Ok(if against == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

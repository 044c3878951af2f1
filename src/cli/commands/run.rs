//! `cachealloc run`: a program under the library.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use nix::sys::signal::SigSet;

use super::Result;
use crate::failure::{Failure, USAGE, say};
use crate::kernel;
use crate::launch::program::{NOT_EXECUTABLE, NOT_FOUND};
use crate::launch::report::Wanted;
use crate::launch::settings::Flags;
use crate::launch::{fit, library, program, settings, uncached, watch};

/// Run a program under the library.
///
/// This command replaces itself with the program (exec): exit code, signals and terminal are the program's.
/// Every option of the library is a flag; flags override CACHEALLOC_CONF.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc run -- ./app args
  cachealloc run --report app.html -- python train.py
  cachealloc run --uncached --report app.html -- python train.py      tensors, not segments
  cachealloc run --gpu-memory-limit-mb 4096 --stats-on-exit stderr -- ./app
  mpirun -n 4 cachealloc run --record -- ./app      a snapshot of each rank")]
pub(crate) struct Arguments {
    /// The program, as a shell finds it, and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    library: library::Named,
    /// Record, and make a report (HTML) when the program has ended.
    ///
    /// In a job of several ranks each makes its own, with its rank in the name (%r, or before the extension).
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Turn the caches of frameworks off, so that each tensor is seen, not the segments that hold them.
    ///
    /// By their own variables: PyTorch, JAX and TensorFlow have some. What is set is said.
    #[arg(long)]
    uncached: bool,
    /// Start the program even if the library cannot be loaded.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: Flags,
}

/// The exit codes of `env` and `timeout` for their own failures, which are not taken for the program's.
pub(crate) const NOT_THE_PROGRAM: u8 = 125;

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { command, library, report, uncached, force, mut flags } = arguments;
    let library = library::find(library).map_err(|failure| failure.code(NOT_THE_PROGRAM))?;
    let executable = program::executable(&command[0])?;
    if !force {
        fit::check(&library, &executable).map_err(|failure| {
            failure.also("--force starts it without the library").code(NOT_THE_PROGRAM)
        })?;
    }
    let before = env::var(settings::VARIABLE).or_else(|error| match error {
        env::VarError::NotPresent => Ok(String::new()),
        env::VarError::NotUnicode(value) => {
            let value = value.to_string_lossy();
            let what = format!("{} is not UTF-8: {value}", settings::VARIABLE);
            Err(Failure::new(what).next("fix the variable, or unset it").code(USAGE))
        }
    })?;
    let report = report.map(|path| Wanted::prepare(path, &mut flags)).transpose()?;
    let (settings, _) = flags.merge(&before)?;
    if env::var_os("CACHEALLOC").is_some_and(|value| value == "0") {
        say(format_args!("CACHEALLOC=0 is set: the library will do nothing"));
    }
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    program.env("LD_PRELOAD", library::preload(&library.path, env::var_os("LD_PRELOAD")));
    if uncached {
        uncached::set(&mut program);
    }
    if !settings.is_empty() {
        program.env(settings::VARIABLE, settings);
    }
    match report {
        None => {
            kernel::start_as_we_began(
                &mut program,
                SigSet::thread_get_mask().unwrap_or(SigSet::empty()),
            );
            Err(not_started(&command, &program.exec()))
        }
        Some(wanted) => beside(&mut program, &command, wanted),
    }
}

/// Waits for the program's end and makes the report. The exit code is the program's in any case.
fn beside(program: &mut Command, command: &[OsString], wanted: Wanted) -> Result {
    let status = watch::run(program).map_err(|error| not_started(command, &error))?;
    match wanted.make(status) {
        Ok((path, snapshots)) => {
            // The library has named them.
            let removed = match snapshots {
                1 => "its snapshot is removed".to_string(),
                snapshots => format!("its {snapshots} snapshots are removed"),
            };
            say(format_args!("report: {} ({removed})", path.display()));
        }
        Err(failure) => {
            failure.report();
        }
    }
    Ok(watch::end_as(status))
}

fn not_started(command: &[OsString], error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let shown = command[0].to_string_lossy();
    Failure::new(format!("{shown} cannot be started: {error}")).code(code)
}

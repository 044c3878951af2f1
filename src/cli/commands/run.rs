//! `cachealloc run`: runs a program under the library.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

use cachealloc_options::{LogLevel, Record};
use clap::Args;
use nix::sys::signal::SigSet;

use super::Result;
use crate::failure::{Failure, NOT_THE_PROGRAM, USAGE, say};
use crate::kernel;
use crate::launch::limits::{Limits, NOT_KEPT};
use crate::launch::program::{NOT_EXECUTABLE, NOT_FOUND};
use crate::launch::recording::Recording;
use crate::launch::report::Wanted;
use crate::launch::settings::Flags;
use crate::launch::{fit, library, program, settings, uncached, watch};

/// Run a program under the library.
///
/// The command replaces itself with the program (exec): exit code, signals and terminal are those
/// of the program. Every option of the library is a flag; flags override CACHEALLOC_CONF.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc run -- ./app args
  cachealloc run --report app.html -- python train.py
  cachealloc run --uncached --report app.html -- python train.py      records individual tensors
  cachealloc run --max-peak 4G --max-leak 0 -- ./tests      for CI: fails above these limits
  cachealloc run --gpu-memory-limit-mb 4096 --stats-on-exit stderr -- ./app
  mpirun -n 4 cachealloc run --record -- ./app      one snapshot for each rank")]
pub(crate) struct Arguments {
    /// Program, looked up in PATH as by a shell, and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    library: library::Named,
    /// Record, and write an HTML report after the program has ended.
    ///
    /// In a job of several ranks, each rank writes its own report, with the rank in the name (at
    /// %r, or before the extension).
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    report: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    /// Remove the snapshots after writing the report, instead of keeping the last one of each
    /// process next to it.
    #[arg(long, requires = "report")]
    no_keep: bool,
    /// Observe only: serve nothing from a cache, and pass every call on unchanged (cache:false).
    #[arg(long)]
    no_cache: bool,
    /// Disable the caches of frameworks, so that individual tensors are recorded.
    ///
    /// Sets the environment variables that PyTorch, JAX, Paddle and TensorFlow have for this, and
    /// prints those of the frameworks that the program may use.
    #[arg(long)]
    uncached: bool,
    /// Start the program even if the library cannot be loaded.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Variable that names the tool that receives NVTX ranges. It is set to the library, unless a
/// profiler has set it.
const NVTX: &str = "NVTX_INJECTION64_PATH";

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments {
        command,
        library,
        report,
        limits,
        no_keep,
        no_cache,
        uncached,
        force,
        mut flags,
    } = arguments;
    if no_cache {
        flags.set("cache", "false");
    }
    let library = library::find(library).map_err(|failure| failure.code(NOT_THE_PROGRAM))?;
    let meant =
        flags.meant_by(&command[0]).map(|flag| format!("write a flag and its value as: {flag}"));
    // The programs `true` and `false` take no arguments.
    if let Some(advice) = meant.as_ref().filter(|_| command.len() > 1) {
        let what = format!("{:?} would be the program", command[0]);
        return Err(Failure::new(what).next(advice).code(USAGE));
    }
    let executable = program::executable(&command[0]).map_err(|failure| match meant {
        Some(advice) => failure.also(advice),
        None => failure,
    })?;
    if !force {
        fit::check(&library, &executable).map_err(|failure| {
            failure.also("start it without the library with --force").code(NOT_THE_PROGRAM)
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
    let report = report.as_deref().map(Wanted::prepare).transpose()?;
    let limited = limits.flag(&flags)?;
    let recording = match report.as_ref().map(|_| "--report").or(limited) {
        Some(flag) => Some(Recording::prepare(flag, &mut flags)?),
        None => None,
    };
    let (settings, config) = flags.merge(&before)?;
    if env::var_os("CACHEALLOC").is_some_and(|value| value == "0") {
        if let Some(flag) = limited {
            let failure =
                Failure::new(format!("cannot use {flag}: CACHEALLOC=0 disables the library"));
            return Err(failure.next("unset it").code(USAGE));
        }
        say(format_args!("CACHEALLOC=0 is set: the library is disabled"));
    }
    if config.log != LogLevel::Quiet {
        settings::missed(&settings).iter().for_each(|line| say(format_args!("{line}")));
    }
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    program.env("LD_PRELOAD", library::preload(&library.path, env::var_os("LD_PRELOAD")));
    if uncached {
        uncached::set(&mut program, &executable);
    }
    if config.history.record != Record::Off && env::var_os(NVTX).is_none() {
        program.env(NVTX, &library.path);
    }
    if !settings.is_empty() {
        program.env(settings::VARIABLE, settings);
    }
    let Some(recording) = recording else {
        let mask = SigSet::thread_get_mask().unwrap_or(SigSet::empty());
        kernel::inherit_start_state(&mut program, mask);
        return Err(not_started(&command, &program.exec()));
    };
    let status = watch::run(&mut program).map_err(|error| not_started(&command, &error))?;
    recording.recover();
    let files = recording.files();
    let own = limited.and_then(|_| check_limits(&limits, &files, status));
    match report {
        Some(report) => make_report(report, &files, status, recording, !no_keep),
        None => recording.remove(&files),
    }
    Ok(own.unwrap_or_else(|| watch::end_as(status)))
}

/// Returns the exit code of a program that succeeded but exceeded a limit. Otherwise the program's
/// own code counts.
fn check_limits(limits: &Limits, files: &[PathBuf], status: ExitStatus) -> Option<ExitCode> {
    let code = match limits.check(files) {
        Ok(true) => return None,
        Ok(false) => ExitCode::from(NOT_KEPT),
        Err(failure) => failure.report(),
    };
    status.success().then_some(code)
}

fn make_report(
    report: Wanted,
    files: &[PathBuf],
    status: ExitStatus,
    recording: Recording,
    keeps: bool,
) {
    match report.make(files, status) {
        Ok((path, last)) => {
            say(format_args!("report: {}", path.display()));
            let kept = if keeps { recording.keep_beside(&last, &path) } else { Vec::new() };
            for kept in &kept {
                say(format_args!("snapshot: {}", kept.display()));
            }
            if let Some(kept) = kept.first() {
                let kept = kept.display();
                say(format_args!("next: cachealloc findings {kept}"));
                say(format_args!("      cachealloc top-sites {kept}"));
            }
            if !keeps {
                recording.remove(files);
            } else if kept.len() == last.len() {
                // The kept snapshots contain the histories of the others.
                files.iter().for_each(|file| _ = std::fs::remove_file(file));
            }
        }
        Err(failure) => {
            recording.keep(files, failure).report();
        }
    }
}

fn not_started(command: &[OsString], error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let shown = command[0].to_string_lossy();
    Failure::new(format!("cannot start {shown}: {error}")).code(code)
}

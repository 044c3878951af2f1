//! Explains why a process has no readable statistics, in a sentence with the next step.

use std::io;

use super::Problem;
use crate::failure::Failure;
use crate::processes::Process;

/// File name of the library, as it appears in the memory maps of every process under it.
pub(crate) const LIBRARY_NAME: &str = "libcachealloc.so";

pub(crate) fn explain(process: Process, problem: &Problem) -> Failure {
    let Process(number) = process;
    match problem {
        Problem::OtherUser(user) => {
            let now = process.user().map_or("another user".into(), |now| format!("user {now}"));
            Failure::new(format!(
                "process {number} runs as {now}, which cannot write its statistics file, owned by user \
                 {user}"
            ))
            .next("to get them at its exit, start it with: cachealloc run --stats-on-exit FILE")
        }
        Problem::OtherProgram => Failure::new(format!(
            "process {number} ({}) was replaced by another program (exec) after it used CUDA",
            process.command()
        ))
        .next("try again once that program uses CUDA"),
        Problem::NoFolder(error) if process.exists() && !process.has_ended() => {
            match without_file(process) {
                // The folder of the process's file cannot be read.
                Ok(_) => Failure::new(format!("cannot read /dev/shm of process {number}: {error}"))
                    .next("run the command as root on the host"),
                Err(failure) => failure,
            }
        }
        Problem::NoFile | Problem::NoFolder(_) => match without_file(process) {
            Ok(failure) | Err(failure) => failure,
        },
        Problem::Ended => Failure::new(format!("process {number} has ended")),
        Problem::Silent if process.is_stopped() => {
            Failure::new(format!("process {number} is stopped"))
                .next(format!("continue it with: kill -CONT {number}"))
        }
        Problem::Silent => Failure::new(format!("process {number} does not respond"))
            .next("it may be writing a large snapshot: try again later"),
        Problem::OtherLayout => {
            Failure::new(format!("process {number} runs under another version of the library"))
                .next("use the command that came with that library")
        }
        Problem::Refused(error) => {
            Failure::new(format!("cannot read the statistics of process {number}: {error}"))
                .next("run the command as the owner of the process")
        }
        Problem::Garbled(what) => {
            Failure::new(format!("cannot parse the statistics of process {number} ({what})"))
                .next("use the command that came with its library")
        }
    }
}

/// Returns `Ok` if the process runs under the library: its settings and loaded libraries explain
/// why it has no file. Returns `Err` with the reason if it cannot have one.
fn without_file(process: Process) -> Result<Failure, Failure> {
    let Process(number) = process;
    // A zombie: killed and not yet reaped. Its file may be gone, because other processes remove
    // stale files.
    if process.exists() && process.has_ended() {
        return Err(Failure::new(format!("process {number} has ended")));
    }
    if !process.exists() {
        return Err(Failure::new(format!("there is no process {number}"))
            .next("`cachealloc top` lists the processes under cachealloc"));
    }
    let command = process.command();
    Err(match process.maps(LIBRARY_NAME) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let own = nix::unistd::geteuid().as_raw();
            match process.user().filter(|user| *user != own) {
                Some(user) => Failure::new(format!("process {number} belongs to user {user}"))
                    .next("run the command as that user"),
                None => Failure::new(format!(
                    "cannot access process {number} ({command}; other user or container)"
                ))
                .next("run the command as root on the host"),
            }
        }
        Ok(true) => return Ok(under_us(process)),
        _ => Failure::new(format!("process {number} ({command}) does not run under cachealloc"))
            .next(format!("start it with: cachealloc run -- {command}")),
    })
}

/// Explains a process that has loaded the library but has no file.
fn under_us(process: Process) -> Failure {
    let Process(number) = process;
    if process.variable("CACHEALLOC").as_deref() == Some("0") {
        return Failure::new(format!(
            "process {number} runs with CACHEALLOC=0: the library is disabled"
        ))
        .next("start it without that variable");
    }
    let settings = process.variable("CACHEALLOC_CONF").unwrap_or_default();
    let (config, _) = cachealloc_options::parse(&settings);
    if !config.live {
        return Failure::new(format!("process {number} runs with live:false"))
            .next("start it without that option");
    }
    if config.history.signal.is_none() {
        return Failure::new(format!(
            "process {number} runs with signal:off, which disables its statistics"
        ))
        .next("start it without that option");
    }
    let begin = format!("process {number} runs under cachealloc");
    match process.maps_begin(DRIVER_NAME) {
        // A process without the driver cannot have used CUDA.
        Some(false) => Failure::new(format!("{begin} and has not used CUDA yet"))
            .next("try again once it has allocated GPU memory"),
        _ => Failure::new(format!(
            "{begin}, but has no file in /dev/shm: no CUDA context yet, or the file cannot be created"
        ))
        .next("try again once it has allocated GPU memory; log:info reports why there are none"),
    }
}

/// Start of the CUDA driver's file name, the same in every version.
const DRIVER_NAME: &str = "libcuda.so";

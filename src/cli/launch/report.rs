//! Makes the report of one run from the snapshots that it leaves.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use cachealloc_history::name;
use cachealloc_report::FitWhen;
use nix::sys::signal::Signal;

use crate::commands::report;
use crate::failure::{Failure, USAGE};
use crate::output;

/// The requested report.
pub(crate) struct Wanted {
    output: PathBuf,
}

impl Wanted {
    pub(crate) fn prepare(output: &Path) -> Result<Wanted, Failure> {
        let output = with_rank(output, name::rank(|variable| std::env::var(variable).ok()));
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            return Err(Failure::new(format!("the folder {} does not exist", parent.display()))
                .next("create it, or choose another file with --report")
                .code(USAGE));
        }
        output::check(&output).map_err(|failure| failure.code(USAGE))?;
        Ok(Wanted { output })
    }

    /// Makes the report of a program that ended with `status` and left these snapshots. Returns the
    /// report's name and the snapshots it is made of.
    pub(crate) fn make(
        self,
        files: &[PathBuf],
        status: ExitStatus,
    ) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
        if files.is_empty() {
            return Err(without_snapshot(status));
        }
        let last = report::write(files, FitWhen::Short, &self.output)?;
        Ok((self.output, last))
    }
}

fn without_snapshot(status: ExitStatus) -> Failure {
    let signal = status.signal().map(|number| match Signal::try_from(number) {
        Ok(signal) => signal.to_string(),
        Err(_) => format!("signal {number}"),
    });
    match signal {
        Some(signal) => Failure::new(format!("no report: {signal} ended the program"))
            .next("take a snapshot while it runs: cachealloc snapshot PID"),
        None => Failure::new("no report: the program left no snapshot")
            .next("it used no CUDA, or a child process that did is still running"),
    }
}

/// Replaces `%r` with the rank. A name without `%r` gets the rank before its extension, because all
/// ranks of a job are given the same name.
fn with_rank(output: &Path, rank: Option<u32>) -> PathBuf {
    let name = output.as_os_str().as_bytes();
    let Some(rank) = rank else {
        return path(replaced(&replaced(name, b"-%r", b""), b"%r", b""));
    };
    let rank = rank.to_string();
    if name.windows(2).any(|piece| piece == b"%r") {
        return path(replaced(name, b"%r", rank.as_bytes()));
    }
    let mut with_rank = output.file_stem().unwrap_or_default().to_owned();
    with_rank.push(format!("-{rank}"));
    if let Some(end) = output.extension() {
        with_rank.push(".");
        with_rank.push(end);
    }
    output.with_file_name(with_rank)
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Replaces bytes rather than text, because a path need not be UTF-8.
fn replaced(name: &[u8], piece: &[u8], by: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    let mut rest = name;
    while let Some(at) = rest.windows(piece.len()).position(|it| it == piece) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(by);
        rest = &rest[at + piece.len()..];
    }
    made.extend_from_slice(rest);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_in_the_name() {
        for (name, rank, wanted) in [
            ("out.html", None, "out.html"),
            ("out.html", Some(3), "out-3.html"),
            ("a.b/out", Some(3), "a.b/out-3"),
            ("out-%r.html", Some(12), "out-12.html"),
            ("out-%r.html", None, "out.html"),
            ("%r/out.html", Some(0), "0/out.html"),
        ] {
            assert_eq!(with_rank(Path::new(name), rank), Path::new(wanted), "{name}");
        }
    }
}

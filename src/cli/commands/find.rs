//! `cachealloc find`: the block that an address belongs to, or belonged to last.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cachealloc_analysis::model::{Device, GRAPHS, HOST_DEVICE, Snapshot};
use cachealloc_analysis::{Found, Lifetimes, When, find, moment_of_version};
use clap::Args;

use super::Result;
use super::top_sites::moment;
use crate::failure::{FAILED, Failure};
use crate::processes::Process;
use crate::show::find::{self as show, Shown};
use crate::snapshots;

/// Find the block that contains an address, or contained it last.
///
/// Prints the stacks of its allocation, its free and its segment, and the adjacent blocks. The
/// address may come from the message of an illegal memory access, from compute-sanitizer or a
/// debugger, or be PyTorch's name for a block. A running process is made to write a snapshot first,
/// as by `cachealloc snapshot`. The exit code is 1 if no block ever contained the address.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc find 0x7f0640012340 app.pickle   in a snapshot
  cachealloc find 7f0640012340 4711           in a running program
  cachealloc find b7f0640012200_3 app.pickle  a block, by its name in PyTorch's viewer")]
pub(crate) struct Arguments {
    /// Hexadecimal address, with or without 0x; or PyTorch's name for a block or segment
    /// (b7f0640012200_3).
    #[arg(value_name = "ADDRESS", value_parser = asked)]
    address: Asked,
    /// Snapshot of cachealloc or PyTorch, or a process under the library.
    #[arg(value_name = "FILE|PID")]
    what: String,
    /// Time in the history: end, peak, oom (the last failed allocation), a time since the first
    /// entry (2.5s, 300ms), or an entry (#1200). Default: end; for a name, the time of its
    /// allocation.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<When>,
    /// Time to wait for the snapshot of a process.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Print JSON, with whole stacks.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    address: u64,
    /// Number of blocks at this address that were freed before.
    version: Option<u64>,
}

fn asked(text: &str) -> std::result::Result<Asked, String> {
    let parse = || {
        let text = text.trim();
        if let Some((name, version)) = text.split_once('_') {
            let address = name.strip_prefix(['b', 's'])?;
            let address = u64::from_str_radix(address, 16).ok()?;
            let version = version.parse().ok()?;
            return Some(Asked { address, version: name.starts_with('b').then_some(version) });
        }
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
        // `from_str_radix` would accept a plus sign.
        let digits = Some(digits).filter(|digits| !digits.starts_with('+'))?;
        Some(Asked { address: u64::from_str_radix(digits, 16).ok()?, version: None })
    };
    parse().ok_or_else(|| "expected a hexadecimal address such as 0x7f0640012340".into())
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { address: asked, what, at, timeout, json } = arguments;
    let (snapshot, taken) = match what.parse() {
        Ok(process) => {
            let file = super::snapshot::take(Process(process), Duration::from_secs(timeout))?;
            (snapshots::read(&file)?, Some(file.display().to_string()))
        }
        Err(_) => (snapshots::read(Path::new(&what))?, None),
    };
    let mut told = Vec::new();
    let devices = snapshot.devices.iter().zip(0..);
    let others = [(&snapshot.host, HOST_DEVICE), (&snapshot.graphs, GRAPHS)];
    for (device, ordinal) in devices.chain(others) {
        told.extend(found(device, asked, at)?.map(|found| (ordinal, found)));
    }
    if told.is_empty() {
        return Err(nothing(&snapshot, asked.address, &what));
    }
    // Devices that hold or held the address take precedence over those where it is only nearby.
    let is_known = |found: &Found| found.life.is_some() || found.segment.is_some();
    let any = told.iter().any(|(_, found)| is_known(found) || found.released_by.is_some());
    told.retain(|(_, found)| !any || is_known(found) || found.released_by.is_some());
    let shown = Shown { snapshot: &snapshot, address: asked.address, taken, found: &told };
    match json {
        true => super::print(&show::json(&shown)?)?,
        false => super::print_lines(&show::text(&shown))?,
    }
    let is_held = told.iter().any(|(_, found)| is_known(found));
    Ok(if is_held { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn found(device: &Device, asked: Asked, at: Option<When>) -> Result<Option<Found>> {
    if device.segments.is_empty() && device.entries.is_empty() {
        return Ok(None);
    }
    let lifetimes = Lifetimes::of(device);
    let moment = match (asked.version, at) {
        (Some(version), None) => moment_of_version(device, &lifetimes, asked.address, version),
        (_, at) => at.unwrap_or(When::End).resolve(device, &lifetimes),
    };
    Ok(moment.and_then(|moment| find(device, &lifetimes, asked.address, moment)))
}

fn nothing(snapshot: &Snapshot, address: u64, what: &str) -> Failure {
    let failure = Failure::new(format!("no memory is known at {address:#x} in {what}"));
    match snapshot.entries_count() {
        0 => failure.next("it has no history: start the program with cachealloc run --record"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let plain = Some((0x7f06_4001_2340, None));
        for (text, wanted) in [
            ("0x7f0640012340", plain),
            ("0X7F0640012340", plain),
            (" 7f0640012340", plain),
            ("b7f0640012340_3", Some((0x7f06_4001_2340, Some(3)))),
            ("s7f0640012340_3", plain),
            ("", None),
            ("0x", None),
            ("+7f", None),
            ("7f_1", None),
            ("b7f_", None),
            ("0x1ffffffffffffffff", None),
            ("main", None),
        ] {
            let parsed = asked(text).ok().map(|asked| (asked.address, asked.version));
            assert_eq!(parsed, wanted, "{text}");
        }
    }
}

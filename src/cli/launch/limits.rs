//! Limits that a program must keep in an unattended test: `run --max-peak 4G --max-leak 0`.
//!
//! The check uses the history, in requested bytes. Neither timing nor memory that the cache
//! reserves affects it, so a program that does the same each time gets the same result each time.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cachealloc_analysis::model::{Dropped, Snapshot};
use cachealloc_analysis::names::{self, Names};
use cachealloc_analysis::{Lifetimes, SiteKey, sites};
use cachealloc_history::category;
use clap::Args;

use super::settings::Flags;
use crate::failure::{Failure, NOT_THE_PROGRAM, USAGE, say};
use crate::show::sites::place;
use crate::show::{bytes, count, plural};
use crate::{size, snapshots};

/// Exit code of `run` if a limit was exceeded. No other tool uses it for its own purposes.
pub(crate) const NOT_KEPT: u8 = 122;
/// Number of call sites named for each limit.
const SITES_SHOWN: usize = 5;

#[derive(Args)]
pub(crate) struct Limits {
    /// Exit with code 122 if the program ever held more than this on a device, such as 4G or 512M.
    ///
    /// Only memory that the program requested counts, not what the cache reserves. The call sites
    /// that held most are printed on stderr. If the program itself fails, its exit code is kept.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    max_peak: Option<u64>,
    /// Exit with code 122 if the program ends without freeing more than this on a device.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    max_leak: Option<u64>,
    /// Apply --max-peak and --max-leak only to the memory of this library.
    ///
    /// Its file name (librmm.so), or its name in top-sites (RMM, app).
    #[arg(long, value_name = "LIBRARY", value_parser = library)]
    only_library: Option<String>,
}

fn limit(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("expected {}, or 0", size::ALLOWED))
}

/// Converts a file name to the category name of its memory.
fn library(text: &str) -> Result<String, String> {
    let is_file = text.contains(".so") || text.contains('/');
    match category::of(std::iter::once(text), "") {
        _ if text.is_empty() => Err("expected a library".into()),
        name if is_file && name == category::UNKNOWN => {
            Err("it passes requests on and holds no memory itself".into())
        }
        name if is_file => Ok(name),
        _ => Ok(text.to_string()),
    }
}

impl Limits {
    /// Returns the flag that needs a recording.
    pub(crate) fn flag(&self, flags: &Flags) -> Result<Option<&'static str>, Failure> {
        match self {
            Limits { max_peak: Some(_), .. } if flags.value("record") == Some("state") => {
                let what = "cannot use --max-peak with --record=state: it needs the history";
                Err(Failure::new(what).next("omit one of them").code(USAGE))
            }
            Limits { max_peak: Some(_), .. } => Ok(Some("--max-peak")),
            Limits { max_leak: Some(_), .. } => Ok(Some("--max-leak")),
            Limits { only_library: Some(_), .. } => {
                let failure = Failure::new("--only-library has no effect without a limit");
                Err(failure.next("add --max-peak or --max-leak").code(USAGE))
            }
            _ => Ok(None),
        }
    }

    /// Returns whether the program that left these snapshots kept the limits. Prints every
    /// violation on stderr.
    pub(crate) fn check(&self, files: &[PathBuf]) -> Result<bool, Failure> {
        if files.is_empty() {
            say(format_args!(
                "nothing to limit: the program left no snapshot: it used no CUDA, or was killed"
            ));
            return Ok(true);
        }
        let (mut is_kept, mut is_there) = (true, false);
        for snapshot in last_of_each_process(files)? {
            is_kept &= self.check_process(&snapshot, &mut is_there)?;
        }
        if let Some(library) = self.only_library.as_ref().filter(|_| !is_there) {
            say(format_args!("nothing to limit: {library} holds no memory"));
        }
        Ok(is_kept)
    }

    /// Checks one process. Sets `is_there` if the process has memory that is limited.
    fn check_process(&self, snapshot: &Snapshot, is_there: &mut bool) -> Result<bool, Failure> {
        let is_wanted = |library: &str| {
            self.only_library.as_ref().is_none_or(|only| only.eq_ignore_ascii_case(library))
        };
        let names = Names::of(snapshot);
        let mut is_kept = true;
        for (ordinal, device) in snapshot.devices.iter().enumerate() {
            let lives = Lifetimes::of(device);
            let lives = lives.only(|life| is_wanted(names::library(snapshot, life.category)));
            *is_there |= !lives.all.is_empty();
            let sites = || sites(device, &lives, lives.last);
            let mut hold = |flag: &str, most: u64, held: u64, when: &str, by: SiteKey| {
                if held > most {
                    is_kept = false;
                    let who = format!("{}, device {ordinal}", process(snapshot));
                    let [held, most] = apart(held, most);
                    say(format_args!(
                        "{who}: {held} {when}, but {flag} allows {most}; by call site:"
                    ));
                    blame(snapshot, &names, sites(), by);
                }
            };
            if let Some(most) = self.max_peak {
                hold("--max-peak", most, lives.peak_bytes, "at the peak", SiteKey::Peak);
            }
            if let Some(most) = self.max_leak.filter(|_| has_ended(snapshot)) {
                hold("--max-leak", most, lives.end_bytes, "never freed", SiteKey::Live);
            }
        }
        match lost(snapshot) {
            Some(why) if is_kept && self.max_peak.is_some() => Err(Failure::new(format!(
                "cannot check --max-peak for {}: {why}",
                process(snapshot)
            ))
            .next("keep more with --max-entries, and record from the start")
            .code(NOT_THE_PROGRAM)),
            _ => Ok(is_kept),
        }
    }
}

/// Formats two amounts, in exact bytes if they would otherwise look the same.
fn apart(held: u64, most: u64) -> [String; 2] {
    let exact = |number: u64| format!("{} B", count(number));
    match [held, most].map(bytes) {
        [held_text, most_text] if held_text == most_text => [held, most].map(exact),
        texts => texts,
    }
}

/// Prints a line for each of the call sites with the most memory.
fn blame(
    snapshot: &Snapshot,
    names: &Names,
    mut sites: Vec<cachealloc_analysis::Site>,
    by: SiteKey,
) {
    sites.retain(|site| by.weight(&site.totals) > 0);
    sites.sort_by_key(|site| std::cmp::Reverse(by.weight(&site.totals)));
    for site in sites.iter().take(SITES_SHOWN) {
        let blocks = match by {
            SiteKey::Peak => site.totals.peak_count,
            _ => site.totals.live_count,
        };
        let (held, blocks) = (bytes(by.weight(&site.totals)), plural(blocks, "block"));
        let library = names::library(snapshot, site.category);
        let place = place(snapshot, names, site);
        say(format_args!("  {held} in {blocks}, {library}: {place}"));
    }
}

/// Returns the last snapshot of each process: an out-of-memory error or a request writes earlier
/// ones.
fn last_of_each_process(files: &[PathBuf]) -> Result<Vec<Snapshot>, Failure> {
    let mut last: Vec<(Snapshot, u64)> = Vec::new();
    for file in files {
        let (snapshot, number) = (snapshots::read(file)?, number(file));
        let same = |other: &Snapshot| {
            ["host", "process"].iter().all(|key| other.setting(key) == snapshot.setting(key))
        };
        match last.iter_mut().find(|(other, _)| same(other)) {
            Some((_, before)) if *before > number => {}
            Some(known) => *known = (snapshot, number),
            None => last.push((snapshot, number)),
        }
    }
    Ok(last.into_iter().map(|(snapshot, _)| snapshot).collect())
}

/// Returns the number of a snapshot among those of its process: `host-812-3.pickle`.
fn number(file: &Path) -> u64 {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn process(snapshot: &Snapshot) -> String {
    let mut text = format!("process {}", snapshot.setting("process").unwrap_or("?"));
    if let Some(rank) = snapshot.setting("rank") {
        let _ = write!(text, " (rank {rank})");
    }
    text
}

/// Returns whether the snapshot was taken at the end of its process. Memory in an earlier one may
/// still have been freed.
fn has_ended(snapshot: &Snapshot) -> bool {
    matches!(snapshot.setting("taken"), Some("exit" | "signal"))
}

/// Returns why the peak may have been higher than the history shows.
fn lost(snapshot: &Snapshot) -> Option<String> {
    if let Dropped::Count(dropped @ 1..) = snapshot.settings.dropped {
        return Some(format!("the oldest {} entries of its history are lost", count(dropped)));
    }
    let late = snapshot.setting("recorded_from_start") == Some("false");
    late.then(|| "it was not recorded from the start".to_string())
}

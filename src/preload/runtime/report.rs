//! The whole report: every context, the driver's calls, the waits, and who holds the memory. Names of
//! libraries are looked up here: call where a snapshot may be written.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use cachealloc_core::report::{self, Holder, Report};
use cachealloc_history::Describe;

use crate::record::holders::Held;
use crate::record::symbols::Names;
use crate::runtime::contexts;
use crate::runtime::reading::{self, Patience};
use crate::runtime::{snapshot, stats};
use crate::{config, record};

/// Writes everything to this file: as JSON where its name says so, else as text.
pub fn write(path: &Path) -> io::Result<()> {
    let report = take(Patience::GivesUp);
    let as_json = path.extension() == Some(OsStr::new("json"));
    let text = if as_json { report::json(&report) } else { report::text(&report) };
    snapshot::write_file(path, |out| out.write_all(text.as_bytes()))
}

pub fn json(patience: Patience) -> String {
    report::json(&take(patience))
}

fn take(patience: Patience) -> Report {
    let contexts = reading::reports(patience);
    Report {
        version: env!("CARGO_PKG_VERSION"),
        process_id: std::process::id(),
        free_mode: stats::mode_name(config::get().free_mode),
        contexts,
        calls: stats::calls(),
        waits: stats::waits(),
        counts: stats::counts(),
        holders: record::is_on().then(|| snapshot::with_all_names(holders)),
    }
}

/// By device and library, those that held most at the peak first.
fn holders(names: &mut Names) -> Vec<Holder> {
    let mut sums: BTreeMap<(i32, String), (u64, u64)> = BTreeMap::new();
    for context in contexts::every() {
        let held = context.recorder.holders();
        names.prepare_categories(held.iter().map(|held| held.stack));
        for Held { stack, bytes, bytes_at_peak } in held {
            let library = if stack.is_none() { String::new() } else { names.category(stack) };
            let library = if library.is_empty() { "unknown".to_string() } else { library };
            let sum = sums.entry((context.device, library)).or_default();
            *sum = (sum.0 + bytes, sum.1 + bytes_at_peak);
        }
    }
    let mut holders: Vec<Holder> = sums
        .into_iter()
        .map(|((device, library), (bytes, bytes_at_peak))| Holder {
            device,
            library,
            bytes,
            bytes_at_peak,
        })
        .collect();
    holders.sort_by_key(|holder| (holder.device, core::cmp::Reverse(holder.bytes_at_peak)));
    holders
}

//! Why does my program wait? With `waits_on_exit:stderr` every wait inside the library is added up by
//! reason and by where in the program it happened, and said when the process ends.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use cachealloc_history::{Describe, Frame, StackId};

use crate::lock::lock;
use crate::record::capture;
use crate::record::symbols::Names;
use crate::statistics::stats::Wait;
use crate::{config, log};

/// The sites that are shown, and how many frames of each.
const SITES_SHOWN: usize = 10;
const FRAMES_SHOWN: usize = 6;

static SITES: Mutex<Option<HashMap<Site, Total>>> = Mutex::new(None);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Site {
    reason: Wait,
    stack: StackId,
}

#[derive(Clone, Copy, Default)]
struct Total {
    count: u64,
    nanoseconds: u64,
}

/// A wait of this length is over.
#[inline]
pub fn note(reason: Wait, nanoseconds: u64) {
    if config::get().waits_on_exit {
        note_site(reason, nanoseconds);
    }
}

#[cold]
fn note_site(reason: Wait, nanoseconds: u64) {
    let site = Site { reason, stack: capture::of_wait() };
    let mut sites = lock(&SITES);
    let total = sites.get_or_insert_default().entry(site).or_default();
    total.count += 1;
    total.nanoseconds += nanoseconds;
}

/// Says all of it, the longest first.
pub fn print(names: &mut Names) {
    let mut sites: Vec<(Site, Total)> =
        lock(&SITES).iter().flatten().map(|(site, total)| (*site, *total)).collect();
    sites.sort_by_key(|(_, total)| core::cmp::Reverse(total.nanoseconds));
    names.prepare(sites.iter().take(SITES_SHOWN).map(|(site, _)| site.stack), || ());
    let all: Total = sites.iter().fold(Total::default(), |sum, (_, total)| Total {
        count: sum.count + total.count,
        nanoseconds: sum.nanoseconds + total.nanoseconds,
    });
    let mut text = String::new();
    let _ = writeln!(text, "cachealloc: waited {} times, {}", all.count, milliseconds(all));
    for (site, total) in sites.iter().take(SITES_SHOWN) {
        let reason = site.reason.text();
        let _ = writeln!(text, "  {:>10} in {} waits: {reason}", milliseconds(*total), total.count);
        for frame in names.frames(site.stack).iter().take(FRAMES_SHOWN) {
            let Frame { name, filename, line } = &**frame;
            let _ = writeln!(text, "             {name}  {filename}:{line}");
        }
    }
    if sites.len() > SITES_SHOWN {
        let _ = writeln!(text, "  and at {} more places", sites.len() - SITES_SHOWN);
    }
    log::raw(text.as_bytes());
}

fn milliseconds(total: Total) -> String {
    format!("{:.1} ms", total.nanoseconds as f64 / 1e6)
}

//! Every wait that the library added to a call of the program, by reason, so that a user can see
//! why a program waits. With `waits_on_exit:stderr` also by call site, printed when the process
//! ends.

use std::fmt::Write as _;
use std::sync::Mutex;

use cachealloc_history::{Describe, StackId};
use cachealloc_statistics::Timed;
use cachealloc_text::{count, time};

use crate::clock::Instant;
use crate::lists::hash::HashMap;
use crate::lock::lock;
use crate::record::capture;
use crate::record::symbols::Names;
use crate::statistics::counters::{CallTally, counters};
use crate::{config, log};

/// Number of sites to print, and of frames for each.
const SITES_SHOWN: usize = 10;
const FRAMES_SHOWN: usize = 6;

counters! {
    /// Why a call of the program waited inside the library.
    Wait {
        /// In the mode `strict` every free waits, as it does without the library.
        Strict = "free: mode strict",
        /// Work in flight may be visible to the host.
        HostVisible = "free: work visible to the host",
        /// Another context, a peer or another process may reach the memory.
        Shared = "free: memory visible to another observer",
        /// A stream captures, so no barrier is possible.
        Capture = "free: a stream is capturing",
        /// Another free waits in the driver and holds the context.
        BehindFree = "free: behind another waiting free",
        BarrierFailed = "free: the barrier failed",
        Bypass = "free: caching is off",
        /// Something that earlier work may use is about to end.
        Teardown = "teardown after a free",
        /// A query was repeated after the thread's own free.
        Query = "query after a free",
        /// The first observer that barriers do not order.
        Observer = "export or peer access after a free",
        /// Memory had to be back at the driver before an allocation could continue.
        Release = "allocation: memory being returned",
        /// Peer processes release memory.
        Neighbours = "allocation: memory of other processes",
        /// The request waits for memory: `wait_for_memory_s`.
        Memory = "allocation: memory that is in use",
        /// The driver reports asynchronously which graphs are gone.
        Notes = "allocation: notes of graphs",
        /// Without the library, the free of this memory would have waited (mode `relaxed`).
        ParkedFree = "allocation: parked frees",
        /// The waiting `cuMemFree` released a segment.
        RealFree = "allocation: waiting cuMemFree",
    }
}

static WAITS: [CallTally; Wait::ALL.len()] = [const { CallTally::new() }; Wait::ALL.len()];

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

/// Runs a call that may wait and charges its time to `reason`.
pub(crate) fn timed<T>(reason: Wait, call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = call();
    note(reason, WAITS[reason as usize].note(begun));
    result
}

/// Returns every wait, by reason.
pub(crate) fn all() -> Vec<Timed> {
    Wait::ALL.iter().map(|reason| WAITS[*reason as usize].named(reason.text())).collect()
}

/// Returns how often the program waited for this reason, and for how many nanoseconds.
pub(crate) fn of(reason: Wait) -> (u64, u64) {
    WAITS[reason as usize].read()
}

/// Counts a wait that has ended.
#[inline]
fn note(reason: Wait, nanoseconds: u64) {
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

/// Prints all waits, the longest first.
pub(crate) fn print(names: &mut Names) {
    let mut sites: Vec<(Site, Total)> =
        lock(&SITES).iter().flatten().map(|(site, total)| (*site, *total)).collect();
    sites.sort_by_key(|(_, total)| core::cmp::Reverse(total.nanoseconds));
    names.prepare(sites.iter().take(SITES_SHOWN).map(|(site, _)| site.stack), || ());
    let all: Total = sites.iter().fold(Total::default(), |sum, (_, total)| Total {
        count: sum.count + total.count,
        nanoseconds: sum.nanoseconds + total.nanoseconds,
    });
    let mut text = String::new();
    let _ =
        writeln!(text, "cachealloc: waited {} times, {}", count(all.count), time(all.nanoseconds));
    for (site, total) in sites.iter().take(SITES_SHOWN) {
        let reason = site.reason.text();
        let _ = writeln!(
            text,
            "  {:>10} in {} waits: {reason}",
            time(total.nanoseconds),
            count(total.count)
        );
        for frame in names.frames(site.stack).iter().take(FRAMES_SHOWN) {
            let _ = writeln!(text, "             {}  {}", frame.name, frame.place());
        }
    }
    if sites.len() > SITES_SHOWN {
        let _ = writeln!(text, "  and at {} more places", sites.len() - SITES_SHOWN);
    }
    log::raw(text.as_bytes());
}

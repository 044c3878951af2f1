//! Events counted where they happen: calls that reached the driver with their time, and rare
//! events. Independent of contexts.

use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_statistics::Timed;

use crate::clock::Instant;
use crate::driver::sys::CuResult;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$d:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(crate) enum $name { $($(#[$d])* $variant,)* }

        impl $name {
            pub(crate) const ALL: &'static [$name] = &[$($name::$variant,)*];

            pub(crate) fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// Events rare enough for one shared counter each.
    Count {
        SegmentsReserved = "segments reserved",
        SegmentsReleased = "segments given back",
        PassedToDriver = "requests passed to the driver",
        PinnedFromCache = "requests for pinned memory served from the cache",
        Retries = "calls repeated after giving memory back",
        Quarantined = "blocks lost to a failed context",
        RefusedByLimit = "requests refused because of the limit",
        AsyncNative = "stream-ordered requests left to the driver",
        BlocksExported = "blocks exported to other processes",
        NeighboursAsked = "requests for which other processes gave memory",
        Gifts = "gifts of memory to other processes",
        BlocksImported = "blocks imported from other processes",
    }
}

/// A number of events and the time they took.
#[derive(Default)]
pub(crate) struct CallTally {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl CallTally {
    pub(crate) const fn new() -> CallTally {
        CallTally { count: AtomicU64::new(0), nanoseconds: AtomicU64::new(0) }
    }

    /// Counts one event that began at `begun` and has ended. Returns its nanoseconds.
    pub(crate) fn note(&self, begun: Instant) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = begun.elapsed().as_nanos() as u64;
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        nanoseconds
    }

    pub(crate) fn named(&self, name: &'static str) -> Timed {
        let (count, nanoseconds) = self.read();
        Timed { name, count, nanoseconds: Some(nanoseconds) }
    }

    /// Returns the number of events and their nanoseconds.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.nanoseconds.load(Ordering::Relaxed))
    }
}

static COUNTS: [AtomicU64; Count::ALL.len()] = [const { AtomicU64::new(0) }; Count::ALL.len()];
static RESERVES: CallTally = CallTally::new();
static RELEASES: CallTally = CallTally::new();

pub(crate) fn count(what: Count) {
    add(what, 1);
}

pub(crate) fn add(what: Count, amount: u64) {
    COUNTS[what as usize].fetch_add(amount, Ordering::Relaxed);
}

pub(crate) fn value(what: Count) -> u64 {
    COUNTS[what as usize].load(Ordering::Relaxed)
}

pub(crate) fn counts() -> Vec<(&'static str, u64)> {
    Count::ALL.iter().map(|what| (what.text(), value(*what))).collect()
}

/// Runs the driver's allocation. The mean of its time is what a hit saves.
pub(crate) fn timed_reserve<T>(call: impl FnOnce() -> CuResult<T>) -> CuResult<T> {
    let begun = Instant::now();
    let result = call();
    if result.is_ok() {
        RESERVES.note(begun);
    }
    result
}

/// Runs a call that releases memory to the driver.
pub(crate) fn timed_release<T>(call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = call();
    RELEASES.note(begun);
    result
}

/// Returns the driver's calls that provided memory and took it back.
pub(crate) fn calls() -> Vec<Timed> {
    [("reserve", &RESERVES), ("release", &RELEASES)].map(|(name, tally)| tally.named(name)).into()
}

/// Returns the number of the driver's allocations and their nanoseconds.
pub(crate) fn reserves() -> (u64, u64) {
    RESERVES.read()
}

//! What happened, for the table at exit: calls served, calls that reached the driver, barriers,
//! and every wait that we inserted, by reason. A user must be able to read why a program waits.

use crate::clock::Instant;
use core::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::Stats;
use cachealloc_core::order::{Agent, Mode};
use cachealloc_core::report::Timed;

use crate::driver::sys::{CuResult, SUCCESS};
use crate::ordering::LEDGER;
use crate::process::patience::Patience;
use crate::statistics::{reading, waits};
use crate::{config, contexts, log};

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$d:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$d])* $variant,)* }

        impl $name {
            const ALL: &'static [$name] = &[$($name::$variant,)*];

            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

counters! {
    /// Things that happen seldom enough for one shared counter each.
    Count {
        SegmentsReserved = "segments reserved",
        SegmentsReleased = "segments given back",
        PassedToDriver = "requests passed to the driver",
        Retries = "calls repeated after giving memory back",
        Quarantined = "blocks lost to a failed context",
        RefusedByLimit = "requests refused because of the limit",
        AsyncNative = "stream-ordered requests left to the driver",
        BlocksExported = "blocks exported to other processes",
        BlocksImported = "blocks of other processes, inside their segments",
    }
}

counters! {
    /// Why a call of the program waited inside us.
    Wait {
        /// Mode `strict`: every free waits, as natively.
        Strict = "free: mode strict",
        /// Work in flight may be visible to the host.
        Look = "free: the host could look",
        /// Another context, a peer or another process may reach the memory.
        NotPlain = "free: another agent could look",
        /// A stream captures, so no barrier is possible.
        Capture = "free: a stream captures",
        /// So does another free, of memory that is the driver's, and holds the context.
        Held = "free: behind another that waits",
        BarrierFailed = "free: the barrier failed",
        Bypass = "free: caching is off",
        /// Something that earlier work may use was about to end.
        Teardown = "teardown after a free",
        /// A query was asked again behind the thread's own free.
        Query = "query after a free",
        /// The first sign of an agent beyond the barriers.
        Agent = "export or peer access after a free",
        /// Memory had to be back before an allocation could go on.
        Release = "allocation: memory going back",
        /// Natively the free of this memory had waited (mode `relaxed`).
        ParkedFree = "allocation: parked frees",
        /// A segment was given back by the waiting `cuMemFree`.
        RealFree = "allocation: waiting cuMemFree",
    }
}

/// A number of events and the time they took.
struct Tally {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Tally {
    const fn new() -> Tally {
        Tally { count: AtomicU64::new(0), nanoseconds: AtomicU64::new(0) }
    }

    fn note(&self, begun: Instant) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = begun.elapsed().as_nanos() as u64;
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        nanoseconds
    }

    fn named(&self, name: &'static str) -> Timed {
        let (count, nanoseconds) = self.read();
        Timed { name, count, nanoseconds: Some(nanoseconds) }
    }

    fn read(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.nanoseconds.load(Ordering::Relaxed))
    }
}

static COUNTS: [AtomicU64; Count::ALL.len()] = [const { AtomicU64::new(0) }; Count::ALL.len()];
static WAITS: [Tally; Wait::ALL.len()] = [const { Tally::new() }; Wait::ALL.len()];
static RESERVES: Tally = Tally::new();
static RELEASES: Tally = Tally::new();

/// Allocations that were served before the program had the totals begin anew.
static SERVED_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The totals begin anew; the table at exit is of the whole life of the process.
pub fn note_reset(before: &Stats) {
    SERVED_BEFORE.fetch_add(before.allocation.all.allocated, Ordering::Relaxed);
}

pub fn count(what: Count) {
    add(what, 1);
}

pub fn add(what: Count, amount: u64) {
    COUNTS[what as usize].fetch_add(amount, Ordering::Relaxed);
}

pub fn value(what: Count) -> u64 {
    COUNTS[what as usize].load(Ordering::Relaxed)
}

/// Runs a call that may wait and charges its time to `reason`.
pub fn timed(reason: Wait, call: impl FnOnce() -> CuResult) -> CuResult {
    let begun = Instant::now();
    let code = call();
    waits::note(reason, WAITS[reason as usize].note(begun));
    code
}

/// Runs the driver's allocation; the mean of its time is what a hit saves.
pub fn timed_reserve(call: impl FnOnce() -> CuResult) -> CuResult {
    let begun = Instant::now();
    let code = call();
    if code == SUCCESS {
        RESERVES.note(begun);
    }
    code
}

/// Runs a call that gives memory back to the driver.
pub fn timed_release(call: impl FnOnce() -> CuResult) -> CuResult {
    let begun = Instant::now();
    let code = call();
    RELEASES.note(begun);
    code
}

/// The driver's calls that were made to get memory and to give it back.
pub fn calls() -> Vec<Timed> {
    [("reserve", &RESERVES), ("release", &RELEASES)].map(|(name, tally)| tally.named(name)).into()
}

/// Every wait, by reason.
pub fn waits() -> Vec<Timed> {
    Wait::ALL.iter().map(|reason| WAITS[*reason as usize].named(reason.text())).collect()
}

pub fn counts() -> Vec<(&'static str, u64)> {
    Count::ALL.iter().map(|what| (what.text(), value(*what))).collect()
}

/// Prints the table of `stats_on_exit:stderr`, once. Nothing for a process that never allocated.
///
/// Makes no driver call: the driver may be gone. Allocates nothing and waits for no lock: the
/// program may end inside a signal handler.
pub fn print_at_exit() {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    let total = Totals::read();
    let idle = total.served == 0 && value(Count::PassedToDriver) == 0;
    if idle || PRINTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut text = Text { bytes: [0; TABLE_BYTES_MAX], used: 0 };
    let _ = write_table(&mut text, &total);
    log::raw(&text.bytes[..text.used]);
}

fn write_table(out: &mut Text, total: &Totals) -> fmt::Result {
    writeln!(out, "cachealloc: {}", env!("CARGO_PKG_VERSION"))?;
    row(out, "process", "", format_args!("{}", std::process::id()))?;
    row(out, "free_mode", "", format_args!("{}", mode_name(config::get().free_mode)))?;
    let (reserves, reserve_nanoseconds) = RESERVES.read();
    row(out, "allocations served", "", format_args!("{}", total.served))?;
    row(out, "of these without the driver", "", format_args!("{}", total.hits()))?;
    row(out, "cuMemAlloc calls that reached the driver", "", format_args!("{reserves}"))?;
    for call in calls().iter().filter(|call| call.count != 0) {
        let milliseconds = call.nanoseconds.unwrap_or(0) as f64 / 1e6;
        let value = format_args!("{} ({milliseconds:.1} ms)", call.count);
        row(out, "driver calls: ", call.name, value)?;
    }
    if let Some(mean) = reserve_nanoseconds.checked_div(reserves) {
        let saved = total.hits() as f64 * mean as f64 / 1e6;
        row(out, "time saved in cuMemAlloc, about", "", format_args!("{saved:.1} ms"))?;
    }
    row(out, "reserved peak", "", format_args!("{:.1} MiB", mib(total.reserved_peak)))?;
    row(out, "allocated peak", "", format_args!("{:.1} MiB", mib(total.allocated_peak)))?;
    row(out, "barriers", "", format_args!("{}", total.barriers))?;
    for what in Count::ALL.iter().filter(|what| value(**what) != 0) {
        row(out, what.text(), "", format_args!("{}", value(*what)))?;
    }
    for reason in Wait::ALL {
        let (count, nanoseconds) = WAITS[*reason as usize].read();
        if count != 0 {
            let milliseconds = nanoseconds as f64 / 1e6;
            row(out, "waits, ", reason.text(), format_args!("{count} ({milliseconds:.1} ms)"))?;
        }
    }
    let causes = [
        ("agents seen", LEDGER.plain.agents() & !(1 << Agent::ProcessEnd as u32)),
        ("kernels visible to the host, causes", LEDGER.visible.causes()),
        ("skipping ended, causes", LEDGER.skipping.causes()),
    ];
    for (name, bits) in causes.into_iter().filter(|(_, bits)| *bits != 0) {
        row(out, name, "", format_args!("{bits:#x}"))?;
    }
    Ok(())
}

fn row(out: &mut Text, name: &str, more: &str, value: fmt::Arguments) -> fmt::Result {
    let used = out.used;
    write!(out, "cachealloc:   {name}{more}")?;
    while out.used < used + VALUE_COLUMN {
        out.write_char(' ')?;
    }
    writeln!(out, "{value}")
}

/// As the option `free_mode` calls it.
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Ordered => "ordered",
        Mode::Strict => "strict",
        Mode::Relaxed => "relaxed",
    }
}

const TABLE_BYTES_MAX: usize = 4096;
const VALUE_COLUMN: usize = 58;

/// A text that is cut where it is full.
struct Text {
    bytes: [u8; TABLE_BYTES_MAX],
    used: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = text.len().min(TABLE_BYTES_MAX - self.used);
        self.bytes[self.used..self.used + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

struct Totals {
    served: u64,
    barriers: u64,
    reserved_peak: u64,
    allocated_peak: u64,
}

impl Totals {
    /// A context whose lock somebody holds is left out.
    fn read() -> Totals {
        let mut total = Totals {
            barriers: 0,
            served: SERVED_BEFORE.load(Ordering::Relaxed),
            reserved_peak: 0,
            allocated_peak: 0,
        };
        for context in contexts::every() {
            total.barriers += context.last_barrier.count();
            let Some(stats) = reading::stats(context, Patience::Never) else { continue };
            total.served += stats.allocation.all.allocated;
            total.reserved_peak += stats.reserved_bytes.all.peak;
            total.allocated_peak += stats.allocated_bytes.all.peak;
        }
        total
    }

    fn hits(&self) -> u64 {
        self.served.saturating_sub(value(Count::SegmentsReserved))
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

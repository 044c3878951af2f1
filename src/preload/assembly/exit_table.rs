//! The table of `stats_on_exit:stderr`.

use core::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_core::Stats;
use cachealloc_core::order::Observer;
use cachealloc_options::Word;
use cachealloc_text::{Bytes, Count as Amount, Time};

use crate::assembly::reading;
use crate::process::lock_timeout::LockWait;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits;
use crate::statistics::waits::Wait;
use crate::{config, log};

/// Number of allocations served before the program reset the totals.
static SERVED_BEFORE: AtomicU64 = AtomicU64::new(0);

/// Keeps the totals before a reset: the table at exit covers the whole life of the process.
pub(crate) fn note_reset(before: &Stats) {
    SERVED_BEFORE.fetch_add(before.allocation.all.allocated, Ordering::Relaxed);
}

/// Prints the table of `stats_on_exit:stderr`, once. Prints nothing for a process that has not
/// allocated.
///
/// Makes no driver call: the driver may be gone. Allocates nothing and waits for no lock: the
/// program may end inside a signal handler.
pub(crate) fn print_at_exit() {
    static PRINTED: AtomicBool = AtomicBool::new(false);
    let total = Totals::read();
    let idle = total.served == 0 && counters::value(Count::PassedToDriver) == 0;
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
    row(out, "free_mode", "", format_args!("{}", config::get().free_mode.word()))?;
    let (reserves, _) = counters::reserves();
    row(out, "allocations served", "", format_args!("{}", Amount(total.served)))?;
    row(out, "of these without the driver", "", format_args!("{}", Amount(total.hits())))?;
    row(out, "cuMemAlloc calls that reached the driver", "", format_args!("{}", Amount(reserves)))?;
    for call in counters::calls().iter().filter(|call| call.count != 0) {
        let (count, time) = (Amount(call.count), Time(call.nanoseconds.unwrap_or(0)));
        row(out, "driver calls: ", call.name, format_args!("{count} ({time})"))?;
    }
    row(out, "reserved peak", "", format_args!("{}", Bytes(total.reserved_peak)))?;
    row(out, "allocated peak", "", format_args!("{}", Bytes(total.allocated_peak)))?;
    row(out, "barriers", "", format_args!("{}", Amount(total.barriers)))?;
    for what in Count::ALL.iter().filter(|what| counters::value(**what) != 0) {
        row(out, what.text(), "", format_args!("{}", Amount(counters::value(*what))))?;
    }
    for reason in Wait::ALL {
        let (count, nanoseconds) = waits::of(*reason);
        if count != 0 {
            let (count, time) = (Amount(count), Time(nanoseconds));
            row(out, "waits, ", reason.text(), format_args!("{count} ({time})"))?;
        }
    }
    let causes = [
        ("observers seen", LEDGER.exclusive.observers() & !(1 << Observer::ProcessEnd as u32)),
        ("kernels visible to the host, causes", LEDGER.visible.causes()),
        ("elision ended, causes", LEDGER.elision.causes()),
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

const TABLE_BYTES_MAX: usize = 4096;
const VALUE_COLUMN: usize = 58;

/// A text that is cut off at its capacity.
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
    /// Reads the totals, without contexts whose lock is held.
    fn read() -> Totals {
        let mut total = Totals {
            barriers: 0,
            served: SERVED_BEFORE.load(Ordering::Relaxed),
            reserved_peak: 0,
            allocated_peak: 0,
        };
        for context in contexts::every() {
            total.barriers += context.last_barrier.count();
            let Some(stats) = reading::stats(context, LockWait::TryOnce) else { continue };
            total.served += stats.allocation.all.allocated;
            total.reserved_peak += stats.reserved_bytes.all.peak;
            total.allocated_peak += stats.allocated_bytes.all.peak;
        }
        total
    }

    fn hits(&self) -> u64 {
        let asked = [Count::SegmentsReserved, Count::PassedToDriver].map(counters::value);
        self.served.saturating_sub(asked.iter().sum())
    }
}

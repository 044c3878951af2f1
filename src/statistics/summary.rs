//! The table that `torch.cuda.memory_summary` prints, with its units and its 77 columns: users know
//! where to look.

use std::fmt;

use cachealloc_core::{PoolStats, Stat, Stats};

/// Columns between the two bars of a line.
const INNER_COLUMNS: usize = 75;

/// Units of an amount. A larger unit is used from three quarters of the square of `step` on.
struct Units {
    names: &'static [&'static str],
    step: u64,
    most: u64,
    digits: usize,
}

const BYTES: Units = Units {
    names: &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"],
    step: 1024,
    most: 768 * 1024,
    digits: 6,
};
const COUNTS: Units = Units { names: &["  ", "K ", "M "], step: 1000, most: 750 * 1000, digits: 7 };

/// Returns the table. `title` identifies its subject; PyTorch has "device ID 0" there.
pub fn summary(title: &str, stats: &Stats) -> String {
    let mut table = Table(String::new());
    table.rule('=');
    table.line(format_args!("{:^INNER_COLUMNS$}", format!("CUDA memory summary, {title}")));
    table.rule('-');
    let Stats { num_ooms, num_alloc_retries, .. } = stats;
    let (ooms, retries) = ("CUDA OOMs:", "cudaMalloc retries:");
    table.line(format_args!("{ooms:>22} {num_ooms:<12} | {retries:>26} {num_alloc_retries:<8}  "));
    table.rule('=');
    let head = "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ";
    table.line(format_args!("{head}"));
    for (name, units, pooled) in rows(stats) {
        table.rule('-');
        table.row(name, units, &pooled.all, &pooled.all);
        table.row("      from large pool", units, &pooled.large, &pooled.all);
        table.row("      from small pool", units, &pooled.small, &pooled.all);
    }
    for (name, stat) in [
        ("Oversize allocations", &stats.oversize_allocations),
        ("Oversize GPU segments", &stats.oversize_segments),
    ] {
        table.rule('-');
        table.row(name, &COUNTS, stat, stat);
    }
    table.rule('=');
    table.0
}

fn rows(stats: &Stats) -> [(&'static str, &'static Units, &PoolStats); 9] {
    [
        ("Allocated memory", &BYTES, &stats.allocated_bytes),
        ("Active memory", &BYTES, &stats.active_bytes),
        ("Requested memory", &BYTES, &stats.requested_bytes),
        ("GPU reserved memory", &BYTES, &stats.reserved_bytes),
        ("Non-releasable memory", &BYTES, &stats.inactive_split_bytes),
        ("Allocations", &COUNTS, &stats.allocation),
        ("Active allocs", &COUNTS, &stats.active),
        ("GPU reserved segments", &COUNTS, &stats.segment),
        ("Non-releasable allocs", &COUNTS, &stats.inactive_split),
    ]
}

struct Table(String);

impl Table {
    fn line(&mut self, inner: fmt::Arguments) {
        self.0 += &format!("|{inner}|\n");
    }

    fn rule(&mut self, letter: char) {
        let inner: String = std::iter::repeat_n(letter, INNER_COLUMNS).collect();
        self.line(format_args!("{inner}"));
    }

    /// Adds a row. The units suit the whole, so that the parts can be compared with it.
    fn row(&mut self, name: &str, units: &Units, stat: &Stat, whole: &Stat) {
        let [current, peak, allocated, freed] = [
            (stat.current, whole.current),
            (stat.peak, whole.peak),
            (stat.allocated, whole.allocated),
            (stat.freed, whole.freed),
        ]
        .map(|(amount, whole)| units.text(amount, whole));
        self.line(format_args!(" {name:<21} | {current} | {peak} | {allocated} | {freed} "));
    }
}

impl Units {
    fn text(&self, mut amount: u64, whole: u64) -> String {
        let mut whole = whole as f64;
        let mut name = self.names[0];
        for larger in &self.names[1..] {
            if whole < self.most as f64 {
                break;
            }
            name = larger;
            amount /= self.step;
            whole /= self.step as f64;
        }
        format!("{amount:digits$} {name}", digits = self.digits)
    }
}

//! Prints tables: all processes, or one with its libraries, call sites and waits.

use std::cmp::Reverse;

use super::gpus::Named;
use super::lines::{self, Line};
use super::rates::Rates;
use super::samples::Look;
use crate::live::Statistics;
use crate::show::{self, Column, Table};

/// Number of call sites shown by default.
const SITES_DEFAULT: usize = 20;

const NOTHING: &str = "nothing of this user runs under cachealloc and uses CUDA; start \
                                  something with: cachealloc run -- ./app";

pub(super) fn nothing(look: &Look) -> &'static str {
    match look.only.is_all() {
        true => NOTHING,
        false => "no program under cachealloc uses this GPU; omit --gpu to show all",
    }
}

pub(super) fn all(look: &Look, rates: &Rates, rows: usize) -> String {
    if look.samples.is_empty() && look.silent.is_empty() {
        return format!("{}\n", nothing(look));
    }
    let lines = lines::processes(look, rates).into_iter().take(rows);
    table(lines::PROCESSES, &lines::PROCESSES_GO, lines) + &gpus(&look.gpus())
}

/// Returns a table of the GPUs, or nothing if no process reports its GPUs.
fn gpus(gpus: &[Named]) -> String {
    if gpus.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        Column::number("GPU"),
        Column::number("TOTAL"),
        Column::number("FREE"),
        Column::text("PCI ADDRESS"),
        Column::text("UUID"),
    ]);
    for gpu in gpus {
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_string(), show::bytes);
        let text = |text: &Option<String>| text.clone().unwrap_or("-".to_string());
        let (total, free) = (bytes(gpu.total_bytes), bytes(gpu.free_bytes));
        table.row([gpu.name.clone(), total, free, text(&gpu.pci), text(&gpu.uuid)]);
    }
    format!("\n{}", table.text())
}

pub(super) fn one(look: &Look, rates: &Rates, rows: Option<usize>) -> String {
    let mut text = all(look, rates, usize::MAX);
    let Some(sample) = look.samples.first() else { return text };
    text += "\n";
    text += &waits(&sample.statistics);
    text += &show::holders(&sample.statistics, &|device| look.named(sample, device).name);
    if sample.statistics.call_sites.is_some() {
        let sites =
            lines::sites(look, sample, rates).into_iter().take(rows.unwrap_or(SITES_DEFAULT));
        text += "\n";
        text += &table(lines::SITES, &lines::SITES_GO, sites);
    }
    text
}

/// Returns a table of the waits, or nothing if the program never waited.
fn waits(statistics: &Statistics) -> String {
    let mut waits: Vec<_> = statistics.waits.iter().filter(|(_, wait)| wait.count != 0).collect();
    if waits.is_empty() {
        return String::new();
    }
    waits.sort_by_key(|(_, wait)| Reverse(wait.nanoseconds));
    let columns = [Column::number("WAITS"), Column::number("TIME"), Column::text("REASON")];
    let mut table = Table::new(columns);
    for (reason, wait) in waits {
        let time = wait.nanoseconds.map_or("-".to_string(), show::time);
        table.row([show::count(wait.count), time, show::words(reason)]);
    }
    table.text() + "\n"
}

fn table<const N: usize>(
    columns: [Column; N],
    go: &'static [&'static str],
    lines: impl Iterator<Item = Line<N>>,
) -> String {
    let mut table = Table::new(columns).dropping(go);
    lines.for_each(|line| table.row(line.values.map(|value| value.text)));
    table.text()
}

//! The whole report as text for people: PyTorch's table for each context, then everything that
//! PyTorch's table lacks.

use std::fmt::Write as _;

use cachealloc_text::{Bytes, Count, Share, Time};

use crate::{HostCache, Report, Timed, summary};

/// Column at which values begin.
const VALUE_COLUMN: usize = 58;

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for context in &report.contexts {
        let gone = if context.is_alive { "" } else { ", gone" };
        let title = format!("device ID {}, context {}{gone}", context.device, context.id);
        text += &summary(&title, &context.stats);
        text += "\n";
    }
    let (served, hits) = report.hits();
    line(&mut text, "cachealloc", report.version);
    line(&mut text, "process", report.process_id);
    line(&mut text, "free_mode", report.free_mode);
    line(&mut text, "allocations served", Count(served));
    line(&mut text, "of these without the driver", Count(hits));
    if served != 0 {
        line(&mut text, "hit rate", Share(hits as f64 / served as f64));
    }
    if let Some(time) = report.steady {
        line(&mut text, "since one reached the driver", Time(time.as_nanos() as u64));
    }
    let barriers = report.contexts.iter().map(|context| context.barriers_count).sum::<u64>();
    line(&mut text, "barriers", Count(barriers));
    report.calls.iter().for_each(|call| timed(&mut text, "driver: ", call));
    let waits = report.waits.iter().filter(|wait| wait.count != 0);
    waits.for_each(|wait| timed(&mut text, "waits, ", wait));
    for (name, count) in report.counts.iter().filter(|(_, count)| *count != 0) {
        line(&mut text, name, Count(*count));
    }
    let HostCache { pieces_count, bytes } = report.host_cache;
    if pieces_count != 0 {
        let value = format!("{} ({})", Count(pieces_count), Bytes(bytes));
        line(&mut text, "pinned blocks in the cache", value);
    }
    holders(&mut text, report);
    text
}

fn holders(text: &mut String, report: &Report) {
    let Some(holders) = &report.holders else {
        return line(text, "memory by library", "not recorded (record:state)");
    };
    let _ = writeln!(text, "\n{:>6} {:>18} {:>18}  library", "device", "at the peak", "now");
    for holder in holders {
        let crate::Holder { device, library, bytes, bytes_at_peak } = holder;
        let [peak, now] = [*bytes_at_peak, *bytes].map(cachealloc_text::bytes);
        let _ = writeln!(text, "{device:>6} {peak:>18} {now:>18}  {library}");
    }
}

fn timed(text: &mut String, begin: &str, what: &Timed) {
    let name = format!("{begin}{}", what.name);
    match what.nanoseconds {
        None => line(text, &name, Count(what.count)),
        Some(time) => line(text, &name, format!("{} ({})", Count(what.count), Time(time))),
    }
}

fn line(text: &mut String, name: &str, value: impl ToString) {
    let _ = writeln!(text, "{name:<VALUE_COLUMN$}{}", value.to_string());
}

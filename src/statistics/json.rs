//! The statistics as JSON. A writer of our own: what it has to write are numbers and short texts,
//! and the library that is preloaded everywhere stays small.

use std::fmt::Write as _;

use crate::{CallSite, ContextReport, Limit, Recording, Report, Snapshots, Timed, keys};
use cachealloc_core::Stats;

/// One object, over several lines, with a line break at its end.
pub fn json(report: &Report) -> String {
    let (served, hits) = report.hits();
    let mut object = Object::new(0);
    object.text("cachealloc", report.version);
    object.number("process", report.process_id);
    object.text("free_mode", report.free_mode);
    object.number("allocations_served", served);
    object.number("hits", hits);
    object.raw("hit_rate", &rate(hits, served));
    object.raw("driver_calls", &timed(&report.calls));
    let barriers = report.contexts.iter().map(|context| context.barriers_count).sum::<u64>();
    object.number("barriers", barriers);
    object.raw("waits", &timed(&report.waits));
    let mut counts = Object::new(1);
    report.counts.iter().for_each(|(name, count)| counts.number(name, count));
    object.raw("counts", &counts.end());
    let mut devices = Object::new(1);
    for device in report.devices() {
        devices.raw(&device.to_string(), &stats(2, &report.of_device(device)));
    }
    object.raw("devices", &devices.end());
    object.raw("contexts", &list(report.contexts.iter().map(context)));
    match &report.holders {
        None => object.raw("libraries", "null"),
        Some(holders) => object.raw("libraries", &list(holders.iter().map(holder))),
    }
    match &report.call_sites {
        None => object.raw("call_sites", "null"),
        Some(sites) => object.raw("call_sites", &list(sites.iter().map(call_site))),
    }
    object.raw("snapshots", &snapshots(&report.snapshots));
    object.raw("recording", &report.recording.as_ref().map_or("null".to_string(), recording));
    object.raw("limits", &list(report.limits.iter().map(limit)));
    let mut trims = Object::new(1);
    trims.number("asked", report.trims.asked_count);
    trims.number("done", report.trims.done_count);
    trims.number("bytes", report.trims.bytes);
    object.raw("trims", &trims.end());
    object.end() + "\n"
}

fn context(context: &ContextReport) -> String {
    let mut object = Object::new(2);
    object.number("id", context.id);
    object.number("device", context.device);
    object.raw("alive", if context.is_alive { "true" } else { "false" });
    object.number("barriers", context.barriers_count);
    object.raw("stats", &stats(3, &context.stats));
    object.end()
}

fn holder(holder: &crate::Holder) -> String {
    let mut object = Object::new(2);
    object.number("device", holder.device);
    object.text("library", &holder.library);
    object.number("bytes", holder.bytes);
    object.number("bytes_at_peak", holder.bytes_at_peak);
    object.end()
}

fn call_site(site: &CallSite) -> String {
    let mut object = Object::new(2);
    object.number("device", site.device);
    object.text("library", &site.library);
    object.number("bytes", site.bytes);
    object.number("bytes_at_peak", site.bytes_at_peak);
    object.number("blocks", site.blocks_count);
    object.number("allocations", site.allocations_count);
    let frames: Vec<String> = site.frames.iter().map(|frame| quoted(frame)).collect();
    object.raw("frames", &format!("[{}]", frames.join(", ")));
    object.end()
}

fn snapshots(snapshots: &Snapshots) -> String {
    let text = |text: &Option<String>| text.as_deref().map_or("null".to_string(), quoted);
    let mut object = Object::new(1);
    object.raw("signal", &number_or_null(snapshots.signal));
    object.number("written", snapshots.written_count);
    object.number("failed", snapshots.failed_count);
    object.raw("last", &text(&snapshots.last));
    object.raw("last_problem", &text(&snapshots.last_problem));
    object.end()
}

fn recording(recording: &Recording) -> String {
    let mut object = Object::new(1);
    object.text("record", recording.record);
    object.text("context", recording.context);
    object.text("stacks", recording.stacks);
    object.number("max_entries", recording.max_entries);
    object.raw("device", &number_or_null(recording.device));
    object.end()
}

fn limit(limit: &Limit) -> String {
    let mut object = Object::new(2);
    object.number("device", limit.device);
    object.raw("limit_bytes", &number_or_null(limit.limit_bytes));
    object.number("held_bytes", limit.held_bytes);
    object.end()
}

fn number_or_null<T: ToString>(number: Option<T>) -> String {
    number.map_or("null".to_string(), |number| number.to_string())
}

fn stats(depth: usize, stats: &Stats) -> String {
    let mut object = Object::new(depth);
    keys::visit(stats, &mut |key, value| object.number(key, value));
    object.end()
}

fn timed(all: &[Timed]) -> String {
    let mut object = Object::new(1);
    for Timed { name, count, nanoseconds } in all {
        let time = nanoseconds.map_or("null".to_string(), |time| time.to_string());
        object.raw(name, &format!("{{\"count\": {count}, \"nanoseconds\": {time}}}"));
    }
    object.end()
}

/// Of nothing there is no share.
fn rate(part: u64, whole: u64) -> String {
    if whole == 0 { "null".to_string() } else { format!("{:.6}", part as f64 / whole as f64) }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items = items.fold(String::new(), |mut text, item| {
        text += if text.is_empty() { "\n    " } else { ",\n    " };
        text + &item
    });
    if items.is_empty() { "[]".to_string() } else { format!("[{items}\n  ]") }
}

/// An object that is being written, so many objects deep.
struct Object {
    text: String,
    depth: usize,
}

impl Object {
    fn new(depth: usize) -> Object {
        Object { text: String::new(), depth }
    }

    fn raw(&mut self, key: &str, value: &str) {
        let comma = if self.text.is_empty() { "" } else { "," };
        let indent = 2 * (self.depth + 1);
        let _ = write!(self.text, "{comma}\n{:indent$}{}: {value}", "", quoted(key));
    }

    fn number(&mut self, key: &str, value: impl ToString) {
        self.raw(key, &value.to_string());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    fn end(self) -> String {
        let Object { text, depth } = self;
        if text.is_empty() { "{}".to_string() } else { format!("{{{text}\n{:1$}}}", "", 2 * depth) }
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", control as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

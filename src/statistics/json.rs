//! The statistics as JSON.

use std::io;

use cachealloc_core::Stats;
use cachealloc_options::Word;
use cachealloc_text::Json;

use crate::breakdown::Breakdown;
use crate::{
    CallSite, ContextReport, Frame, Gpu, Holder, Limit, Place, Recording, Report, Snapshots, Timed,
    keys,
};

type Out<'a> = Json<&'a mut Vec<u8>>;
type Written = io::Result<()>;

/// Version of `docs/schema.json`, which describes all JSON of the command. It rises when a key
/// changes its meaning or is removed. New keys may appear without a new version.
pub const SCHEMA_VERSION: u32 = 1;

/// Returns one object, over several lines, with a line break at its end.
pub fn json(report: &Report) -> String {
    let mut text = Vec::new();
    let mut json = Json::lines(&mut text);
    let written = write(&mut json, report).and_then(|()| json.end());
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    String::from_utf8(text).unwrap_or_default()
}

fn write(json: &mut Out, report: &Report) -> Written {
    let (served, hits) = report.hits();
    json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        json.key("cachealloc")?.text(report.version)?;
        json.key("process")?.number(report.process_id)?;
        json.key("free_mode")?.text(report.free_mode)?;
        json.key("allocations_served")?.number(served)?;
        json.key("hits")?.number(hits)?;
        let rate = (served != 0).then(|| format!("{:.6}", hits as f64 / served as f64));
        number_or_null(json.key("hit_rate")?, rate)?;
        timed(json.key("driver_calls")?, &report.calls)?;
        let barriers = report.contexts.iter().map(|context| context.barriers_count).sum::<u64>();
        json.key("barriers")?.number(barriers)?;
        timed(json.key("waits")?, &report.waits)?;
        json.key("counts")?.object(|json| {
            report.counts.iter().try_for_each(|(name, count)| json.key(&snake(name))?.number(count))
        })?;
        json.key("host_cache")?.object(|json| {
            json.key("pieces")?.number(report.host_cache.pieces_count)?;
            json.key("bytes")?.number(report.host_cache.bytes)
        })?;
        json.key("devices")?.object(|json| {
            report.devices().into_iter().try_for_each(|device| {
                stats(json.key(&device.to_string())?, &report.of_device(device))
            })
        })?;
        json.key("gpus")?.list(&report.gpus, gpu)?;
        json.key("contexts")?.list(&report.contexts, context)?;
        match &report.holders {
            None => json.key("libraries")?.null()?,
            Some(holders) => json.key("libraries")?.list(holders, holder)?,
        }
        match &report.call_sites {
            None => json.key("call_sites")?.null()?,
            Some(sites) => json.key("call_sites")?.list(sites, call_site)?,
        }
        snapshots(json.key("snapshots")?, &report.snapshots)?;
        match &report.recording {
            None => json.key("recording")?.null()?,
            Some(settings) => recording(json.key("recording")?, settings)?,
        }
        json.key("limits")?.list(&report.limits, limit)?;
        json.key("trims")?.object(|json| {
            json.key("asked")?.number(report.trims.asked_count)?;
            json.key("done")?.number(report.trims.done_count)?;
            json.key("bytes")?.number(report.trims.bytes)
        })?;
        let seconds = report.steady.map(|time| format!("{:.3}", time.as_secs_f64()));
        number_or_null(json.key("steady_seconds")?, seconds)?;
        match &report.steady_ended_by {
            None => json.key("steady_ended_by")?.null()?,
            Some(frames) => json.key("steady_ended_by")?.list(frames, frame)?,
        }
        json.key("measures")?.object(|json| {
            json.key("asked")?.number(report.measures.asked_count)?;
            json.key("done")?.number(report.measures.done_count)
        })?;
        match &report.breakdowns {
            None => json.key("accounts")?.null(),
            Some(breakdowns) => json.key("accounts")?.list(breakdowns, breakdown),
        }
    })
}

fn breakdown(json: &mut Out, breakdown: &Breakdown) -> Written {
    json.object(|json| {
        json.key("device")?.number(breakdown.device)?;
        number_or_null(json.key("total_bytes")?, breakdown.total_bytes)?;
        number_or_null(json.key("in_use_bytes")?, breakdown.in_use_bytes)?;
        number_or_null(json.key("age_ms")?, breakdown.age_ms)?;
        json.key("missed")?.number(breakdown.missed_count)?;
        json.key("rows")?.list(&breakdown.rows, |json, row| {
            json.object(|json| {
                json.key("part")?.text(row.component.word())?;
                json.key("library")?.text(&row.library)?;
                json.key("bytes")?.number(row.bytes)
            })
        })
    })
}

fn context(json: &mut Out, context: &ContextReport) -> Written {
    json.object(|json| {
        json.key("id")?.number(context.id)?;
        json.key("device")?.number(context.device)?;
        json.key("alive")?.boolean(context.is_alive)?;
        json.key("barriers")?.number(context.barriers_count)?;
        stats(json.key("stats")?, &context.stats)
    })
}

fn gpu(json: &mut Out, gpu: &Gpu) -> Written {
    json.object(|json| {
        json.key("device")?.number(gpu.device)?;
        text_or_null(json.key("uuid")?, &gpu.uuid)?;
        text_or_null(json.key("whole_uuid")?, &gpu.whole_uuid)?;
        text_or_null(json.key("pci")?, &gpu.pci)?;
        number_or_null(json.key("total_bytes")?, gpu.total_bytes)
    })
}

fn holder(json: &mut Out, holder: &Holder) -> Written {
    json.object(|json| {
        json.key("device")?.number(holder.device)?;
        json.key("library")?.text(&holder.library)?;
        json.key("bytes")?.number(holder.bytes)?;
        json.key("bytes_at_peak")?.number(holder.bytes_at_peak)
    })
}

fn call_site(json: &mut Out, site: &CallSite) -> Written {
    json.object(|json| {
        json.key("device")?.number(site.device)?;
        json.key("library")?.text(&site.library)?;
        json.key("bytes")?.number(site.bytes)?;
        json.key("bytes_at_peak")?.number(site.bytes_at_peak)?;
        json.key("blocks")?.number(site.blocks_count)?;
        json.key("allocations")?.number(site.allocations_count)?;
        json.key("frames")?.list(&site.frames, frame)
    })
}

fn frame(json: &mut Out, frame: &Frame) -> Written {
    json.object(|json| {
        json.key("name")?.text(&frame.name)?;
        json.key("filename")?.text(&frame.filename)?;
        match frame.place {
            Place::Line(line) => json.key("line")?.number(line),
            Place::Offset(offset) => json.key("offset")?.number(offset),
        }
    })
}

fn snapshots(json: &mut Out, snapshots: &Snapshots) -> Written {
    json.object(|json| {
        number_or_null(json.key("signal")?, snapshots.signal)?;
        json.key("written")?.number(snapshots.written_count)?;
        json.key("failed")?.number(snapshots.failed_count)?;
        text_or_null(json.key("last")?, &snapshots.last)?;
        text_or_null(json.key("last_problem")?, &snapshots.last_problem)
    })
}

fn recording(json: &mut Out, recording: &Recording) -> Written {
    json.object(|json| {
        json.key("record")?.text(recording.record.word())?;
        json.key("context")?.text(recording.context.word())?;
        json.key("stacks")?.text(recording.stacks.word())?;
        json.key("max_entries")?.number(recording.max_entries)?;
        number_or_null(json.key("device")?, recording.device)
    })
}

fn limit(json: &mut Out, limit: &Limit) -> Written {
    json.object(|json| {
        json.key("device")?.number(limit.device)?;
        number_or_null(json.key("limit_bytes")?, limit.limit_bytes)?;
        json.key("held_bytes")?.number(limit.held_bytes)
    })
}

fn stats(json: &mut Out, stats: &Stats) -> Written {
    json.object(|json| {
        let mut written = Ok(());
        keys::visit(stats, &mut |key, value| {
            let all = std::mem::replace(&mut written, Ok(()));
            written = all.and_then(|()| json.key(key)?.number(value));
        });
        written
    })
}

fn timed(json: &mut Out, all: &[Timed]) -> Written {
    json.object(|json| {
        all.iter().try_for_each(|Timed { name, count, nanoseconds }| {
            json.key(&snake(name))?.object(|json| {
                json.key("count")?.number(count)?;
                number_or_null(json.key("nanoseconds")?, *nanoseconds)
            })
        })
    })
}

/// Converts a name to a key: `free: mode strict` becomes `free_mode_strict`.
fn snake(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
    words.collect::<Vec<_>>().join("_")
}

fn number_or_null(json: &mut Out, number: Option<impl std::fmt::Display>) -> Written {
    match number {
        Some(number) => json.number(number),
        None => json.null(),
    }
}

fn text_or_null(json: &mut Out, text: &Option<String>) -> Written {
    match text {
        Some(text) => json.text(text),
        None => json.null(),
    }
}

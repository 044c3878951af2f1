//! Chrome's trace events, which Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing` show: a process
//! for each device, counters of what is held by library and of what is reserved, a slice for each
//! allocation from its begin to its end, and a mark where a request was refused.

use std::collections::HashMap;
use std::io::{self, Write};

use super::Bounded;
use crate::model::{Action, Device, FrameId, Snapshot, StackId, TextId};
use crate::names::{self, Names};
use crate::{Lifetime, Lifetimes, Moment, reserved_over_time};
use cachealloc_text::Json;

pub fn perfetto(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut json = Json::new(Bounded::new(snapshot, out));
    let mut labels = Labels { snapshot, names: Names::of(snapshot), known: HashMap::new() };
    json.object(|json| {
        json.key("displayTimeUnit")?.text("ms")?;
        json.key("traceEvents")?.array(|json| {
            for (ordinal, device) in (0..).zip(&snapshot.devices) {
                let name = format!("GPU {ordinal}");
                event(json, "M", "process_name", ordinal, 0, |json| {
                    json.key("args")?.object(|json| json.key("name")?.text(&name))
                })?;
                let lifetimes = Lifetimes::of(device);
                counters(json, snapshot, device, &lifetimes, ordinal)?;
                slices(json, snapshot, &mut labels, device, &lifetimes, ordinal)?;
                shortages(json, device, ordinal)?;
            }
            annotations(json, snapshot)
        })
    })?;
    json.end()
}

fn event<W: Write>(
    json: &mut Json<W>,
    phase: &str,
    name: &str,
    device: u32,
    time_us: u64,
    more: impl FnOnce(&mut Json<W>) -> io::Result<()>,
) -> io::Result<()> {
    json.line()?;
    json.object(|json| {
        json.key("ph")?.text(phase)?;
        json.key("name")?.text(name)?;
        json.key("pid")?.number(device)?;
        json.key("tid")?.number(0)?;
        json.key("ts")?.number(time_us)?;
        more(json)
    })
}

/// A value whenever it changes.
fn counters<W: Write>(
    json: &mut Json<W>,
    snapshot: &Snapshot,
    device: &Device,
    lifetimes: &Lifetimes,
    ordinal: u32,
) -> io::Result<()> {
    // What comes and goes at each moment, and whose it is.
    let mut changes: Vec<(Moment, TextId, bool, u64)> = Vec::new();
    for life in &lifetimes.all {
        changes.push((life.begin, life.category, true, life.bytes));
        if life.end <= lifetimes.last {
            changes.push((life.end, life.category, false, life.bytes));
        }
    }
    changes.sort_by_key(|&(moment, ..)| moment);
    let mut held: HashMap<&str, u64> = HashMap::new();
    for of_moment in changes.chunk_by(|left, right| left.0 == right.0) {
        let time_us = time_of(device, of_moment[0].0);
        for &(_, category, comes, bytes) in of_moment {
            let library = names::library(snapshot, category);
            let sum = held.entry(library).or_default();
            *sum = if comes { sum.wrapping_add(bytes) } else { sum.wrapping_sub(bytes) };
        }
        let mut changed: Vec<&str> =
            of_moment.iter().map(|&(_, category, ..)| names::library(snapshot, category)).collect();
        changed.sort_unstable();
        changed.dedup();
        for library in changed {
            counter(json, &format!("held by {library}"), ordinal, time_us, held[library])?;
        }
    }
    let mut before = None;
    for (moment, &bytes) in (0..).zip(&reserved_over_time(device)) {
        if before != Some(bytes) {
            counter(json, "reserved", ordinal, time_of(device, moment), bytes)?;
        }
        before = Some(bytes);
    }
    Ok(())
}

fn counter<W: Write>(
    json: &mut Json<W>,
    name: &str,
    device: u32,
    time_us: u64,
    bytes: u64,
) -> io::Result<()> {
    event(json, "C", name, device, time_us, |json| {
        json.key("args")?.object(|json| json.key("bytes")?.number(bytes))
    })
}

fn slices<W: Write>(
    json: &mut Json<W>,
    snapshot: &Snapshot,
    labels: &mut Labels,
    device: &Device,
    lifetimes: &Lifetimes,
    ordinal: u32,
) -> io::Result<()> {
    // Slices overlap in any way, so each has an id, and is a begin and an end.
    for (number, life) in lifetimes.all.iter().enumerate() {
        let library = names::library(snapshot, life.category);
        let (site, callers) = labels.of(life.stack);
        let id = format!("{ordinal}.{number}");
        event(json, "b", &site, ordinal, time_of(device, life.begin), |json| {
            json.key("cat")?.text(library)?;
            json.key("id")?.text(&id)?;
            let said = life.allocated_by().map(|index| device.entries[index].user_metadata);
            let range = snapshot.texts.get(said.unwrap_or(TextId::EMPTY));
            json.key("args")?.object(|json| arguments(json, life, &callers, range))
        })?;
        event(json, "e", &site, ordinal, time_of(device, life.end), |json| {
            json.key("cat")?.text(library)?;
            json.key("id")?.text(&id)
        })?;
    }
    Ok(())
}

fn arguments<W: Write>(
    json: &mut Json<W>,
    life: &Lifetime,
    callers: &str,
    range: &str,
) -> io::Result<()> {
    json.key("bytes")?.number(life.bytes)?;
    json.key("address")?.text(&format!("{:#x}", life.address))?;
    json.key("stream")?.number(life.stream)?;
    json.key("called by")?.text(callers)?;
    if range.is_empty() { Ok(()) } else { json.key("range")?.text(range) }
}

fn shortages<W: Write>(json: &mut Json<W>, device: &Device, ordinal: u32) -> io::Result<()> {
    for entry in device.entries.iter().filter(|entry| entry.action == Action::OutOfMemory) {
        event(json, "i", "out of memory", ordinal, entry.time_us, |json| {
            json.key("s")?.text("p")?;
            json.key("args")?.object(|json| {
                json.key("asked for bytes")?.number(entry.bytes)?;
                json.key("free on the device")?.number(entry.address)
            })
        })?;
    }
    Ok(())
}

fn annotations<W: Write>(json: &mut Json<W>, snapshot: &Snapshot) -> io::Result<()> {
    for annotation in &snapshot.annotations {
        let phase = if annotation.begin { "b" } else { "e" };
        let name = snapshot.texts.get(annotation.name);
        event(json, phase, name, annotation.device, annotation.time_us, |json| {
            json.key("cat")?.text("annotation")?;
            json.key("id")?.text(&format!("{}.{}", annotation.device, annotation.name.0))
        })?;
    }
    Ok(())
}

/// When the last entry before a moment happened; of the begin, the first one.
fn time_of(device: &Device, moment: Moment) -> u64 {
    let index = (moment as usize).saturating_sub(1).min(device.entries.len().saturating_sub(1));
    device.entries.get(index).map_or(0, |entry| entry.time_us)
}

/// What stacks are called, found out once for each.
struct Labels<'a> {
    snapshot: &'a Snapshot,
    names: Names,
    known: HashMap<StackId, (String, String)>,
}

const CALLERS_SHOWN: usize = 4;

impl Labels<'_> {
    fn of(&mut self, stack: StackId) -> (String, String) {
        let known = self.known.entry(stack).or_insert_with(|| {
            let label = |frame: FrameId| self.names.label(frame).to_string();
            let site = self.names.site(self.snapshot, stack);
            let callers = self.names.callers(self.snapshot, stack).take(CALLERS_SHOWN);
            let callers: Vec<String> = callers.map(label).collect();
            (site.map_or_else(|| super::NO_STACK.into(), label), callers.join(" < "))
        });
        known.clone()
    }
}

//! Writes a trace for Perfetto (<https://ui.perfetto.dev>) in its protobuf format. Each device has
//! these tracks over time:
//!
//! * held memory by library, and reserved memory
//! * a slice for each block from its allocation to its free
//! * a slice for each pass through a range of the program
//! * a mark for each failed request

mod blocks;
mod schema;
mod trace;

use std::collections::HashMap;
use std::io::{self, Write};

use super::{Bounded, number};
use crate::model::{Action, Device, Snapshot};
use crate::names::Names;
use crate::{Lifetimes, Moment, Passes, reserved_over_time};
use blocks::blocks;
use schema::{TrackEvent, Type};
use trace::{Kind, ROOT, Trace};

pub fn perfetto(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut trace = Trace::new(Bounded::new(snapshot, out));
    let names = Names::of(snapshot);
    let mut tracks = HashMap::new();
    for (ordinal, device) in (0..).zip(&snapshot.devices) {
        let track = device_track(&mut trace, &mut tracks, ordinal)?;
        blocks(&mut trace, snapshot, &names, device, &Lifetimes::of(device), track)?;
        reserved(&mut trace, device, track)?;
        shortages(&mut trace, device, track)?;
        passes(&mut trace, snapshot, device, track)?;
    }
    annotations(&mut trace, snapshot, &mut tracks)
}

fn device_track<W: Write>(
    trace: &mut Trace<W>,
    tracks: &mut HashMap<u32, u64>,
    ordinal: u32,
) -> io::Result<u64> {
    if let Some(track) = tracks.get(&ordinal) {
        return Ok(*track);
    }
    let track = trace.track(ROOT, Kind::Device, &format!("device {ordinal}"))?;
    tracks.insert(ordinal, track);
    Ok(track)
}

/// Writes the reserved memory at every change.
fn reserved<W: Write>(trace: &mut Trace<W>, device: &Device, track: u64) -> io::Result<()> {
    let counter = trace.track(track, Kind::Counter, "reserved")?;
    let mut before = None;
    for (moment, &bytes) in (0..).zip(&reserved_over_time(device)) {
        if before != Some(bytes) {
            trace.count(counter, time_of(device, moment), number(bytes))?;
        }
        before = Some(bytes);
    }
    Ok(())
}

fn shortages<W: Write>(trace: &mut Trace<W>, device: &Device, track: u64) -> io::Result<()> {
    for entry in device.entries.iter().filter(|entry| entry.action == Action::OutOfMemory) {
        let mut event = TrackEvent::of(track, Type::Instant);
        event.name_iid = trace.name("out of memory");
        event.debug_annotations = vec![
            trace.key("asked for bytes").number(entry.bytes),
            trace.key("free on the device").number(entry.address),
        ];
        trace.event(entry.time_us, event)?;
    }
    Ok(())
}

/// Writes each range on its own track, because ranges of several threads need not nest.
fn passes<W: Write>(
    trace: &mut Trace<W>,
    snapshot: &Snapshot,
    device: &Device,
    track: u64,
) -> io::Result<()> {
    let passes = Passes::of(device, &snapshot.texts);
    let track_of = |range: &String| trace.track(track, Kind::Annotations, range);
    let tracks = passes.ranges.iter().map(track_of).collect::<io::Result<Vec<u64>>>()?;
    for pass in &passes.all {
        let track = tracks[pass.range as usize];
        let mut event = TrackEvent::of(track, Type::SliceBegin);
        event.category_iids = vec![trace.category("range")];
        event.name_iid = trace.name(&passes.ranges[pass.range as usize]);
        trace.event(time_of(device, pass.begin + 1), event)?;
        trace.event(time_of(device, pass.end), TrackEvent::of(track, Type::SliceEnd))?;
    }
    Ok(())
}

/// Writes what the program named otherwise. In files of cachealloc those are the passes.
fn annotations<W: Write>(
    trace: &mut Trace<W>,
    snapshot: &Snapshot,
    devices: &mut HashMap<u32, u64>,
) -> io::Result<()> {
    let mut tracks = HashMap::new();
    for annotation in snapshot.annotations.iter().filter(|_| !snapshot.is_ours()) {
        let name = snapshot.texts.get(annotation.name);
        let track = match tracks.get(&(annotation.device, annotation.name)) {
            Some(track) => *track,
            None => {
                let device = device_track(trace, devices, annotation.device)?;
                let track = trace.track(device, Kind::Annotations, name)?;
                tracks.insert((annotation.device, annotation.name), track);
                track
            }
        };
        let kind = if annotation.begin { Type::SliceBegin } else { Type::SliceEnd };
        let mut event = TrackEvent::of(track, kind);
        if annotation.begin {
            event.category_iids = vec![trace.category("annotation")];
            event.name_iid = trace.name(name);
        }
        trace.event(annotation.time_us, event)?;
    }
    Ok(())
}

/// Returns the time of the last entry before a moment. Moment 0 has the time of the first entry.
fn time_of(device: &Device, moment: Moment) -> u64 {
    let index = (moment as usize).saturating_sub(1).min(device.entries.len().saturating_sub(1));
    device.entries.get(index).map_or(0, |entry| entry.time_us)
}

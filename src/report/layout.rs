//! All data of the page: a small head in JSON, and columns.

use crate::columns::Columns;
use crate::inputs::{DeviceTrack, Input, title};
use crate::segments::Segments;
use crate::tables::{Tables, Translation};
use crate::track::{Oom, Row, Track};
use crate::{findings, head};

pub(crate) struct Layout {
    pub title: String,
    pub findings: Vec<String>,
    /// JSON.
    pub head: String,
    pub columns: Columns,
}

impl Layout {
    pub(crate) fn of(inputs: &[Input]) -> Layout {
        let mut tables = Tables::default();
        let mut columns = Columns::default();
        let mut segments = Segments::default();
        let mut places = Vec::new();
        let mut translations: Vec<Translation> = inputs
            .iter()
            .enumerate()
            .map(|(file, input)| Translation::of(file, &input.snapshot))
            .collect();
        tables.find_sites(&mut translations);
        for (file, input) in inputs.iter().enumerate() {
            let translation = &mut translations[file];
            for (device, content) in input.snapshot.devices.iter().enumerate() {
                if content.entries.is_empty() && content.segments.is_empty() {
                    continue;
                }
                let track = Track::of(content);
                let stack = |row: &Row| tables.stack(translation, row.stack, row.category);
                let stacks = track.rows.iter().map(stack).collect();
                let oom_stack =
                    |oom: &Oom| tables.stack(translation, oom.stack, Default::default());
                let oom_stacks = track.ooms.iter().map(oom_stack).collect();
                segments.add(&input.snapshot, device, places.len(), translation, &mut tables);
                places.push(DeviceTrack { file, device, track, stacks, oom_stacks });
            }
        }
        for (number, place) in places.iter().enumerate() {
            write_track(&mut columns, number, place);
        }
        segments.write(&mut columns);
        let findings = findings::of(inputs, &places, &mut translations, &mut tables);
        tables.write(&mut columns);
        let head = head::head(inputs, &places, &columns);
        Layout { title: title(inputs), findings, head, columns }
    }
}

fn write_track(columns: &mut Columns, number: usize, place: &DeviceTrack) {
    let track = &place.track;
    let name = |field: &str| format!("track{number}.{field}");
    let begin_us = track.times_us.first().copied().unwrap_or(0);
    columns.delta(&name("time"), track.times_us.iter().map(|time| time - begin_us));
    columns.delta(&name("from"), track.rows.iter().map(|row| row.from.into()));
    let life = |row: &Row| match row.until {
        Some(until) => u64::from(until) + 1 - u64::from(row.from),
        None => 0,
    };
    columns.unsigned(&name("life"), track.rows.iter().map(life));
    columns.unsigned(&name("bytes"), track.rows.iter().map(|row| row.bytes));
    columns.unsigned(&name("stack"), place.stacks.iter().map(|&stack| stack.into()));
    columns.unsigned(&name("stream"), track.rows.iter().map(|row| row.stream));
    columns.unsigned(&name("patterns"), track.rows.iter().map(|row| row.patterns.into()));
    columns.delta(&name("reserve.event"), track.reserves.iter().map(|change| change.0.into()));
    columns.signed(&name("reserve.bytes"), track.reserves.iter().map(|change| change.1));
    columns.delta(&name("oom.event"), track.ooms.iter().map(|oom| oom.event.into()));
    columns.unsigned(&name("oom.requested"), track.ooms.iter().map(|oom| oom.requested_bytes));
    columns.unsigned(&name("oom.free"), track.ooms.iter().map(|oom| oom.free_bytes));
    columns.unsigned(&name("oom.stack"), place.oom_stacks.iter().map(|&stack| stack.into()));
}

//! All data of the page: a small head in JSON, and columns.

use std::collections::HashSet;

use cachealloc_analysis::OTHERS_BETWEEN_MAX;
use cachealloc_analysis::model::{BlockState, Dropped, PoolId, Snapshot};
use serde_json::{Value, json};

use crate::Input;
use crate::columns::Columns;
use crate::findings;
use crate::tables::{Tables, Translation};
use crate::track::{Oom, Row, Track};

/// The page reads this version, and no other.
const VERSION: u32 = 1;

pub struct Layout {
    pub title: String,
    pub findings: Vec<String>,
    pub head: Value,
    pub columns: Columns,
}

/// A track of the page, and where it is from.
pub struct Place {
    pub file: usize,
    pub device: usize,
    pub track: Track,
    /// The page's number of the stack of each row.
    pub stacks: Vec<u32>,
    pub oom_stacks: Vec<u32>,
}

impl Layout {
    pub fn of(inputs: &[Input]) -> Layout {
        let mut tables = Tables::default();
        let mut columns = Columns::default();
        let mut segments = Segments::default();
        let mut places = Vec::new();
        let mut translations: Vec<Translation> =
            inputs.iter().map(|input| Translation::of(&input.snapshot)).collect();
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
                places.push(Place { file, device, track, stacks, oom_stacks });
            }
        }
        for (number, place) in places.iter().enumerate() {
            write_track(&mut columns, number, place);
        }
        segments.write(&mut columns);
        let findings = findings::of(inputs, &places, &mut translations, &mut tables);
        tables.write(&mut columns);
        let title = title(inputs);
        let same_process = same_process(inputs);
        let head = json!({
            "version": VERSION,
            "title": title,
            "temporary_between_max": OTHERS_BETWEEN_MAX,
            "same_process": same_process,
            "files": inputs.iter().map(file).collect::<Vec<_>>(),
            "tracks": places.iter().map(track_head).collect::<Vec<_>>(),
            "columns": columns.index(),
        });
        Layout { title, findings, head, columns }
    }
}

/// The program's name where the file says it, or the file's.
fn title(inputs: &[Input]) -> String {
    let programs: HashSet<_> =
        inputs.iter().filter_map(|input| input.snapshot.setting("program")).collect();
    match (programs.len(), inputs) {
        (1, _) => programs.into_iter().next().unwrap_or_default().to_string(),
        (_, [only]) => only.name.clone(),
        (_, [first, others @ ..]) => format!("{} and {} more", first.name, others.len()),
        (_, []) => "nothing".to_string(),
    }
}

fn file(input: &Input) -> Value {
    let snapshot = &input.snapshot;
    let last = snapshot.devices.iter().filter_map(|device| device.entries.last());
    json!({
        "name": input.name,
        "entries": snapshot.entries_count(),
        "taken_us": last.map(|entry| entry.time_us).max(),
        "dropped": match snapshot.settings.dropped {
            Dropped::Count(count) => Some(count),
            Dropped::Unknown => None,
        },
        "ours": snapshot.is_ours(),
        "settings": snapshot.settings.ours.iter().chain(&snapshot.settings.all).collect::<Vec<_>>(),
    })
}

fn track_head(place: &Place) -> Value {
    json!({
        "file": place.file,
        "device": place.device,
        "begin_us": place.track.times_us.first().copied().unwrap_or(0),
        "reserved_before": place.track.reserved_before,
    })
}

fn write_track(columns: &mut Columns, number: usize, place: &Place) {
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
    columns.delta(&name("reserve.event"), track.reserves.iter().map(|change| change.0.into()));
    columns.signed(&name("reserve.bytes"), track.reserves.iter().map(|change| change.1));
    columns.delta(&name("oom.event"), track.ooms.iter().map(|oom| oom.event.into()));
    columns.unsigned(&name("oom.requested"), track.ooms.iter().map(|oom| oom.requested_bytes));
    columns.unsigned(&name("oom.free"), track.ooms.iter().map(|oom| oom.free_bytes));
    columns.unsigned(&name("oom.stack"), place.oom_stacks.iter().map(|&stack| stack.into()));
}

/// The segments of all files, and their blocks one after the other: they tile the segment, so only
/// their sizes are needed.
#[derive(Default)]
struct Segments {
    segments: Vec<[u64; 9]>,
    blocks: Vec<[u64; 4]>,
}

const SEGMENT_FIELDS: [&str; 9] =
    ["track", "address", "bytes", "stream", "small", "pool", "private", "expandable", "blocks"];
const BLOCK_FIELDS: [&str; 4] = ["bytes", "requested", "state", "stack"];

impl Segments {
    fn add(
        &mut self,
        snapshot: &Snapshot,
        device: usize,
        track: usize,
        translation: &mut Translation,
        tables: &mut Tables,
    ) {
        for segment in &snapshot.devices[device].segments {
            let pool = snapshot.pools.get(segment.pool.0 as usize).copied().unwrap_or_default();
            self.segments.push([
                track as u64,
                segment.address,
                segment.bytes,
                segment.stream,
                segment.small.into(),
                tables.text(&format!("{}.{}", pool.0, pool.1)).into(),
                (segment.pool != PoolId::DEFAULT).into(),
                segment.expandable.into(),
                segment.blocks.len() as u64,
            ]);
            for block in &segment.blocks {
                let (state, stack) = match block.state {
                    BlockState::Free => (0, Default::default()),
                    BlockState::Allocated => (1, block.stack),
                    BlockState::Pending => (2, block.stack),
                };
                let stack = tables.stack(translation, stack, Default::default());
                self.blocks.push([block.bytes, block.requested_bytes, state, stack.into()]);
            }
        }
    }

    fn write(&self, columns: &mut Columns) {
        for (index, field) in SEGMENT_FIELDS.iter().enumerate() {
            let numbers = self.segments.iter().map(|segment| segment[index]);
            columns.unsigned(&format!("segment.{field}"), numbers);
        }
        for (index, field) in BLOCK_FIELDS.iter().enumerate() {
            let numbers = self.blocks.iter().map(|block| block[index]);
            columns.unsigned(&format!("block.{field}"), numbers);
        }
    }
}

/// Whether the files are moments of one process, and so must not be added up: an entry of the first is
/// in the second as well, or both say the same host and process.
fn same_process(inputs: &[Input]) -> bool {
    let [first, others @ ..] = inputs else { return false };
    let identity = |input: &Input| {
        let setting = |name| input.snapshot.setting(name).map(str::to_string);
        Some((setting("host")?, setting("process")?))
    };
    let key = |input: &Input| {
        let entries = input.snapshot.devices.iter().flat_map(|device| &device.entries);
        let keys = entries.filter(|entry| entry.time_us > 0 && entry.bytes > 0);
        keys.map(|entry| (entry.time_us, entry.address, entry.bytes)).collect::<HashSet<_>>()
    };
    if let Some(identity_of_first) = identity(first) {
        return !others.is_empty()
            && others.iter().all(|other| identity(other).as_ref() == Some(&identity_of_first));
    }
    let known = key(first);
    !others.is_empty() && others.iter().all(|other| !known.is_disjoint(&key(other)))
}

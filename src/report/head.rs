//! The head of the data, which the page needs before it can read the columns.

use std::io;

use cachealloc_analysis::OTHERS_BETWEEN_MAX;
use cachealloc_analysis::model::Dropped;
use cachealloc_text::Json;

use crate::columns::Columns;
use crate::inputs::{DeviceTrack, Input, are_runs, same_process};

/// Format version. The page reads only this version.
const VERSION: u32 = 1;

/// Returns the JSON that `write` writes.
pub(crate) fn json(write: impl FnOnce(&mut Json<&mut Vec<u8>>) -> io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut Json::new(&mut bytes)).expect("memory takes it");
    String::from_utf8(bytes).expect("of texts comes text")
}

pub(crate) fn head(inputs: &[Input], places: &[DeviceTrack], columns: &Columns) -> String {
    json(|json| {
        json.object(|json| {
            json.key("version")?.number(VERSION)?;
            json.key("temporary_between_max")?.number(OTHERS_BETWEEN_MAX)?;
            json.key("same_process")?.boolean(same_process(inputs) || are_runs(inputs))?;
            json.key("files")?.list(inputs, |json, input| file(json, input))?;
            json.key("tracks")?.list(places, |json, place| track(json, place))?;
            columns.write_index(json.key("columns")?)
        })
    })
}

fn file(json: &mut Json<&mut Vec<u8>>, input: &Input) -> io::Result<()> {
    let snapshot = &input.snapshot;
    let last = snapshot.devices.iter().filter_map(|device| device.entries.last());
    json.object(|json| {
        json.key("name")?.text(&input.name)?;
        json.key("entries")?.number(snapshot.entries_count())?;
        json.key("taken_us")?.number(last.map(|entry| entry.time_us).max().unwrap_or(0))?;
        json.key("dropped")?.number(match snapshot.settings.dropped {
            Dropped::Count(count) => count,
            Dropped::Unknown => 0,
        })?;
        json.key("ours")?.boolean(snapshot.is_ours())?;
        let settings = snapshot.settings.ours.iter().chain(&snapshot.settings.all);
        json.key("settings")?.list(settings, |json, (name, value)| {
            json.list([name, value], |json, text| json.text(text))
        })
    })
}

fn track(json: &mut Json<&mut Vec<u8>>, place: &DeviceTrack) -> io::Result<()> {
    json.object(|json| {
        json.key("file")?.number(place.file)?;
        json.key("device")?.number(place.device)?;
        json.key("begin_us")?.number(place.track.times_us.first().copied().unwrap_or(0))?;
        json.key("reserved_before")?.number(place.track.reserved_before)
    })
}

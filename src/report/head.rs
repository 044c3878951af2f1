//! The head of the data: what the page must know before it can read the columns.

use std::collections::HashSet;
use std::io;

use cachealloc_analysis::OTHERS_BETWEEN_MAX;
use cachealloc_analysis::model::Dropped;
use cachealloc_text::Json;

use crate::Input;
use crate::columns::Columns;
use crate::layout::Place;

/// The page reads this version, and no other.
const VERSION: u32 = 1;

/// What `write` writes.
pub fn json(write: impl FnOnce(&mut Json<&mut Vec<u8>>) -> io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut Json::new(&mut bytes)).expect("memory takes it");
    String::from_utf8(bytes).expect("of texts comes text")
}

pub fn head(inputs: &[Input], places: &[Place], columns: &Columns) -> String {
    json(|json| {
        json.object(|json| {
            json.key("version")?.number(VERSION)?;
            json.key("temporary_between_max")?.number(OTHERS_BETWEEN_MAX)?;
            json.key("same_process")?.boolean(same_process(inputs))?;
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

fn track(json: &mut Json<&mut Vec<u8>>, place: &Place) -> io::Result<()> {
    json.object(|json| {
        json.key("file")?.number(place.file)?;
        json.key("device")?.number(place.device)?;
        json.key("begin_us")?.number(place.track.times_us.first().copied().unwrap_or(0))?;
        json.key("reserved_before")?.number(place.track.reserved_before)
    })
}

/// The program's name where the file says it, or the file's.
pub fn title(inputs: &[Input]) -> String {
    let programs = inputs.iter().filter_map(|input| input.snapshot.setting("program"));
    let programs: HashSet<_> = programs.collect();
    match (programs.len(), inputs) {
        (1, _) => programs.into_iter().next().unwrap_or_default().to_string(),
        (_, [only]) => only.name.clone(),
        (_, [first, others @ ..]) => format!("{} and {} more", first.name, others.len()),
        (_, []) => "nothing".to_string(),
    }
}

/// Whether the files are moments of one process, and so must not be added up: an entry of the first is
/// in the second as well, or both say the same host and process.
pub fn same_process(inputs: &[Input]) -> bool {
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

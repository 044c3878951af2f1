//! Writes profiles for pprof (`go tool pprof`, speedscope, Grafana Pyroscope): a gzipped protobuf,
//! described in `proto/profile.proto` of <https://github.com/google/pprof>. Each call site has the
//! memory held at the peak and at the end, and everything allocated.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::{Bounded, NO_STACK, number};
use crate::model::{Frame, Snapshot, StackId};
use crate::names::{self, is_source};
use crate::{Lifetimes, Site, Totals, sites_of_ranges};

/// Name, unit and getter of a value. Names and units are pprof's own where it has any.
type Value = (&'static str, &'static str, fn(&Totals) -> u64);

/// The values of a sample.
const VALUES: [Value; 6] = [
    ("peak_objects", "count", |totals| totals.peak_count),
    (SHOWN_FIRST, "bytes", |totals| totals.peak_bytes),
    ("inuse_objects", "count", |totals| totals.end_count),
    ("inuse_space", "bytes", |totals| totals.end_bytes),
    ("alloc_objects", "count", |totals| totals.allocated_count),
    ("alloc_space", "bytes", |totals| totals.allocated_bytes),
];
const SHOWN_FIRST: &str = "peak_space";

pub fn pprof(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut packed = GzEncoder::new(out, Compression::default());
    write(snapshot, &mut Bounded::new(snapshot, &mut packed))?;
    packed.finish()?.flush()
}

/// Writes the profile in pieces, because concatenated pieces of a message form one message. The
/// whole profile is never in memory.
fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    let mut texts = Texts::default();
    let mut piece = |profile: Profile| out.write_all(&profile.encode_to_vec());
    texts.number("");
    let sample_type =
        |(name, unit, _): &Value| ValueType { kind: texts.number(name), unit: texts.number(unit) };
    let (time_nanos, duration_nanos) = times(snapshot);
    piece(Profile {
        sample_type: VALUES.iter().map(sample_type).collect(),
        default_sample_type: texts.number(SHOWN_FIRST),
        time_nanos,
        duration_nanos,
        ..Profile::default()
    })?;
    let frames = snapshot.frames.all();
    let mut mappings: HashMap<i64, u64> = HashMap::new();
    for (number, frame) in (1..).zip(frames) {
        piece(location(snapshot, &mut texts, &mut mappings, number, frame))?;
    }
    let no_stack = frames.len() as u64 + 1;
    piece(nameless(&mut texts, no_stack))?;
    let [device_key, library_key, range_key] =
        ["device", "library", "range"].map(|key| texts.number(key));
    for (ordinal, device) in snapshot.devices.iter().enumerate() {
        let lifetimes = Lifetimes::of(device);
        let device = texts.number(&format!("device {ordinal}"));
        for Site { stack, category, range, totals } in
            sites_of_ranges(&snapshot.devices[ordinal], &lifetimes, lifetimes.last)
        {
            let library = texts.number(names::library(snapshot, category));
            let range = texts.number(range.map_or("", |range| snapshot.texts.get(range)));
            let labels = [(device_key, device), (library_key, library), (range_key, range)];
            // The empty text has number 0.
            let labels = labels.into_iter().filter(|(_, text)| *text != 0);
            piece(Profile {
                sample: vec![Sample {
                    location_id: locations(snapshot, stack, no_stack),
                    value: VALUES.iter().map(|(.., value)| number(value(&totals))).collect(),
                    label: labels.map(|(key, text)| Label { key, text }).collect(),
                }],
                ..Profile::default()
            })?;
        }
    }
    for string_table in texts.all.chunks(TEXTS_AT_ONCE) {
        piece(Profile { string_table: string_table.to_vec(), ..Profile::default() })?;
    }
    Ok(())
}

const TEXTS_AT_ONCE: usize = 1000;

/// Returns the time of the first entry, and the time from it to the last.
fn times(snapshot: &Snapshot) -> (i64, i64) {
    let entries = snapshot.devices.iter().flat_map(|device| &device.entries);
    let times = entries.map(|entry| entry.time_us).filter(|time| *time > 0);
    let (first, last) =
        times.fold((u64::MAX, 0), |(first, last), it| (first.min(it), last.max(it)));
    let nanoseconds = |us: u64| number(us.saturating_mul(1000));
    if last == 0 { (0, 0) } else { (nanoseconds(first), nanoseconds(last - first)) }
}

fn locations(snapshot: &Snapshot, stack: StackId, no_stack: u64) -> Vec<u64> {
    match snapshot.stacks.get(stack) {
        [] => vec![no_stack],
        frames => frames.iter().map(|frame| u64::from(frame.0) + 1).collect(),
    }
}

/// Writes a location, its function, and its library if it is in one, under the same number.
fn location(
    snapshot: &Snapshot,
    texts: &mut Texts,
    mappings: &mut HashMap<i64, u64>,
    id: u64,
    frame: &Frame,
) -> Profile {
    let (name, file) = (snapshot.texts.get(frame.name), snapshot.texts.get(frame.filename));
    let [system_name, filename] = [name, file].map(|text| texts.number(text));
    let (mut mapping, mut mapping_id) = (Vec::new(), 0);
    if !is_source(file) && !file.is_empty() {
        let next = mappings.len() as u64 + 1;
        mapping_id = *mappings.entry(filename).or_insert(next);
        if mapping_id == next {
            let (has_functions, has_filenames) = (true, true);
            mapping.push(Mapping { id: next, filename, has_functions, has_filenames });
        }
    }
    let is_offset = mapping_id != 0;
    Profile {
        mapping,
        location: vec![Location {
            id,
            mapping_id,
            address: if is_offset { frame.line } else { 0 },
            line: vec![Line {
                function_id: id,
                line: if is_offset { 0 } else { number(frame.line) },
            }],
        }],
        function: vec![Function {
            id,
            name: texts.number(&names::short_name(name)),
            system_name,
            filename,
        }],
        ..Profile::default()
    }
}

fn nameless(texts: &mut Texts, id: u64) -> Profile {
    let line = vec![Line { function_id: id, line: 0 }];
    let name = texts.number(NO_STACK);
    Profile {
        location: vec![Location { id, line, ..Location::default() }],
        function: vec![Function { id, name, ..Function::default() }],
        ..Profile::default()
    }
}

/// Texts, each once, with their indices in the string table of the profile.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Texts {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as i64;
        self.all.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        number
    }
}

/// The parts of the format that this writer uses.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

/// A library. pprof does not symbolize a mapping that already has functions.
#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

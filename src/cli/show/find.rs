//! Prints what an address belongs to, as text and as JSON.

use std::fmt::Write as _;
use std::io;

use cachealloc_analysis::formats::Bounded;
use cachealloc_analysis::model::{
    BlockState, Device, GRAPHS, HOST_DEVICE, Segment, Snapshot, StackId,
};
use cachealloc_analysis::names::{Names, library};
use cachealloc_analysis::{BesideBlock, Found, NamedLife, Place};
use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_text::{Json, plain};

use super::sites::{done, stack};
use super::{Column, Table, bytes, count, plural, time};
use crate::commands::Result;

/// Maximum number of frames printed per stack; JSON has all.
const FRAMES_SHOWN: usize = 64;

pub(crate) struct Shown<'a> {
    pub snapshot: &'a Snapshot,
    pub address: u64,
    /// The snapshot taken for this query, if any.
    pub taken: Option<String>,
    /// Results by device.
    pub found: &'a [(u32, Found)],
}

impl Shown<'_> {
    fn device(&self, ordinal: u32) -> &Device {
        match ordinal {
            HOST_DEVICE => &self.snapshot.host,
            GRAPHS => &self.snapshot.graphs,
            ordinal => &self.snapshot.devices[ordinal as usize],
        }
    }
}

/// Returns the block's name as in PyTorch's viewer.
fn block_name(named: &NamedLife) -> String {
    format!("b{:x}_{}", named.life.address, named.version)
}

/// Returns the segment's name as in PyTorch's viewer.
fn segment_name(device: &Device, found: &Found) -> Option<String> {
    let released = || found.released_by.map(|entry| device.entries.at(entry).address);
    let address = found.segment.as_ref().map(|segment| segment.address).or_else(released)?;
    Some(format!("s{address:x}_{}", found.segment_version))
}

pub(crate) fn text(shown: &Shown) -> String {
    let names = Names::of(shown.snapshot);
    let mut text = String::new();
    if let Some(file) = &shown.taken {
        let _ = writeln!(text, "snapshot {}\n", plain(file));
    }
    for (index, (ordinal, found)) in shown.found.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "{:#x}: {}", shown.address, sentence(found));
        let told = One { shown, names: &names, device: shown.device(*ordinal), found };
        told.details(&mut text, *ordinal);
    }
    text
}

/// Describes the position of the address in a sentence.
fn sentence(found: &Found) -> String {
    let from = |offset: u64| match offset {
        0 => "at its first byte".to_string(),
        _ => format!("{} after its first byte", exact(offset)),
    };
    let last = found.life.map(|named| (block_name(&named), named.life));
    let whose = last.as_ref().map(|(name, _)| format!("block {name}"));
    let whose = whose.unwrap_or_else(|| "a block".into());
    match (found.place, &last) {
        (Place::Held { offset }, _) => format!("in {whose}, {}", from(offset)),
        (Place::PastEnd { past: 0 }, _) => format!("directly past the end of {whose}"),
        (Place::PastEnd { past }, _) => format!("{} past the end of {whose}", exact(past)),
        (Place::Pending { offset }, _) => {
            format!("in {whose}, {}; freed, and a stream may still use it", from(offset))
        }
        (Place::Free, Some(_)) => format!("in free memory, last in {whose}"),
        (Place::Free, None) => "in free memory, in no block of the history".into(),
        (Place::Unreserved, Some(_)) => {
            format!("in no segment, last in {whose}: the memory was released to the driver")
        }
        (Place::Unreserved, None) if found.released_by.is_some() => {
            "in a segment that was released to the driver".into()
        }
        (Place::Unreserved, None) => "in no segment".into(),
    }
}

/// Formats an amount that is compared with a program's offsets: always in exact bytes, and from 1
/// KiB also in larger units.
fn exact(amount: u64) -> String {
    match amount {
        0..1024 => plural(amount, "byte"),
        _ => format!("{} bytes ({})", count(amount), bytes(amount)),
    }
}

struct One<'a> {
    shown: &'a Shown<'a>,
    names: &'a Names,
    device: &'a Device,
    found: &'a Found,
}

impl One<'_> {
    fn details(&self, text: &mut String, ordinal: u32) {
        let found = self.found;
        let memory = match ordinal {
            HOST_DEVICE => "memory of the host".to_string(),
            GRAPHS => "memory nodes of graphs".to_string(),
            ordinal => format!("device {ordinal}"),
        };
        let moment = match (found.moment as usize, self.device.entries.len()) {
            (moment, all) if moment >= all => "at the end".to_string(),
            (moment, all) => {
                format!("after entry {} of {}", count(moment as u64), count(all as u64))
            }
        };
        let _ = writeln!(text, "{memory}, {moment}\n");
        if let Some(named) = &found.life {
            self.block(text, named);
        }
        if found.earlier_count > 0 {
            let blocks = plural(found.earlier_count as u64, "block");
            let _ = writeln!(text, "{:TITLE$}{blocks} contained the address", "before");
        }
        self.segment(text);
        if !found.beside.is_empty() {
            let _ = write!(text, "\nadjacent blocks:\n\n{}", self.beside());
        }
        let sides = [(&found.below, "past the end"), (&found.above, "before the start")];
        for (segment, side) in sides {
            if let Some((segment, distance)) = segment {
                let _ = writeln!(
                    text,
                    "{:TITLE$}{} {side} of {}",
                    "nearest",
                    exact(*distance),
                    of_segment(segment)
                );
            }
        }
    }

    fn block(&self, text: &mut String, named: &NamedLife) {
        let life = &named.life;
        let _ = writeln!(
            text,
            "{:TITLE$}{}, {} requested, stream {:#x}, {}",
            "block",
            block_name(named),
            exact(life.bytes),
            life.stream,
            plain(library(self.shown.snapshot, life.category))
        );
        match life.allocated_by() {
            Some(entry) => self.event(text, "allocated", entry),
            None => _ = writeln!(text, "{:TITLE$}before the history began", "allocated"),
        }
        self.frames(text, life.stack);
        // A block may not have been freed yet at an earlier moment.
        if let Some(entry) = life.freed_by().filter(|&entry| entry < self.found.moment as usize) {
            self.event(text, "freed", entry);
            let by = self.device.entries.at(entry).stack;
            if by == life.stack && !by.is_none() {
                let _ = writeln!(text, "{:TITLE$}  (no stack recorded for the free)", "");
            } else {
                self.frames(text, by);
            }
        }
    }

    fn segment(&self, text: &mut String) {
        let found = self.found;
        let bounds = found.segment.as_ref().map(of_segment);
        let gone = found.released_by.map(|entry| {
            let entry = self.device.entries.at(entry);
            format!("{} at {:#x}, released", bytes(entry.bytes), entry.address)
        });
        let Some(bounds) = bounds.or(gone) else { return };
        let name = segment_name(self.device, found).unwrap_or_default();
        let _ = writeln!(text, "{:TITLE$}{name}, {bounds}", "segment");
        match found.reserved_by {
            Some(entry) => {
                self.event(text, "reserved", entry);
                self.frames(text, self.device.entries.at(entry).stack);
            }
            None => {
                let _ = writeln!(text, "{:TITLE$}before the history began", "reserved");
                let is_end = found.moment as usize >= self.device.entries.len();
                if let Some(segment) = found.segment.as_ref().filter(|_| is_end) {
                    self.frames(text, segment.stack);
                }
            }
        }
        if let Some(entry) = found.released_by.filter(|_| found.segment.is_none()) {
            self.event(text, "released", entry);
            self.frames(text, self.device.entries.at(entry).stack);
        }
    }

    fn event(&self, text: &mut String, what: &str, entry: usize) {
        let entries = &self.device.entries;
        let (first, now) = (entries.at(0).time_us, entries.at(entry).time_us);
        let after = time(now.saturating_sub(first).saturating_mul(1000));
        let (number, all) = (count(entry as u64 + 1), count(entries.len() as u64));
        let _ = writeln!(text, "{what:TITLE$}after {after}, by entry {number} of {all}");
    }

    fn frames(&self, text: &mut String, stack: StackId) {
        let frames = self.shown.snapshot.stacks.get(stack);
        for frame in frames.iter().take(FRAMES_SHOWN) {
            let label = cachealloc_text::cut(self.names.label(*frame), LABEL_LETTERS_MAX);
            let _ = writeln!(text, "{:TITLE$}  {}", "", plain(&label));
        }
        if frames.len() > FRAMES_SHOWN {
            let more = plural((frames.len() - FRAMES_SHOWN) as u64, "more frame");
            let _ = writeln!(text, "{:TITLE$}  {more}: print all with --json", "");
        }
    }

    fn beside(&self) -> String {
        let mut table = Table::new([
            Column::text("ADDRESS"),
            Column::number("BYTES"),
            Column::text("STATE"),
            Column::text("NAME"),
            Column::text("WHERE"),
        ]);
        for block in &self.found.beside {
            let at = if block.is_at { ", here" } else { "" };
            let life = block.life.as_ref();
            table.row([
                format!("{:#x}", block.address),
                bytes(block.bytes),
                format!("{}{at}", state(block)),
                life.map(block_name).unwrap_or_default(),
                life.map_or_else(String::new, |it| {
                    self.names.place(self.shown.snapshot, it.life.stack)
                }),
            ]);
        }
        table.text()
    }
}

/// Width of the titles before the lines.
const TITLE: usize = 11;
const LABEL_LETTERS_MAX: usize = 1000;

fn state(block: &BesideBlock) -> &'static str {
    match block.state {
        BlockState::Free => "free",
        BlockState::Allocated => "held",
        BlockState::Pending => "freed, in use by a stream",
    }
}

fn of_segment(segment: &Segment) -> String {
    let kind = match (segment.expandable, segment.small) {
        (true, _) => ", expandable",
        (_, true) => ", for small blocks",
        _ => "",
    };
    let Segment { address, stream, .. } = segment;
    format!("{} at {address:#x}, stream {stream:#x}{kind}", bytes(segment.bytes))
}

pub(crate) fn json(shown: &Shown) -> Result<String> {
    let names = Names::of(shown.snapshot);
    let mut text = Vec::new();
    let mut json = Json::new(Bounded::new(shown.snapshot, &mut text));
    let written = json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        json.key("address")?.number(shown.address)?;
        json.key("snapshot")?;
        match &shown.taken {
            Some(file) => json.text(file)?,
            None => json.null()?,
        }
        json.key("found")?.list(shown.found, |json, (ordinal, found)| {
            json.line()?;
            json.object(|json| one_as_json(json, shown, &names, *ordinal, found))
        })
    });
    done(written.and_then(|()| json.end()), text)
}

fn one_as_json<W: io::Write>(
    json: &mut Json<W>,
    shown: &Shown,
    names: &Names,
    ordinal: u32,
    found: &Found,
) -> io::Result<()> {
    let device = shown.device(ordinal);
    json.key("device")?.number(match ordinal {
        HOST_DEVICE => -1,
        GRAPHS => -2,
        ordinal => i64::from(ordinal),
    })?;
    json.key("after_entries")?.number(found.moment)?;
    let (place, offset) = match found.place {
        Place::Held { offset } => ("block", Some(offset)),
        Place::PastEnd { past } => ("past_end", Some(past)),
        Place::Pending { offset } => ("pending", Some(offset)),
        Place::Free => ("free", None),
        Place::Unreserved => ("no_segment", None),
    };
    json.key("place")?.text(place)?;
    json.key("offset_bytes")?;
    or_null(json, offset.as_ref(), |json, offset| json.number(offset))?;
    json.key("block")?;
    or_null(json, found.life.as_ref(), |json, named| {
        let life = &named.life;
        json.object(|json| {
            json.key("name")?.text(&block_name(named))?;
            json.key("address")?.number(life.address)?;
            json.key("requested_bytes")?.number(life.bytes)?;
            json.key("stream")?.number(life.stream)?;
            json.key("library")?.text(library(shown.snapshot, life.category))?;
            json.key("where")?.text(&names.place(shown.snapshot, life.stack))?;
            json.key("stack")?;
            stack(json, shown.snapshot, life.stack)?;
            event(json.key("allocated")?, shown, device, life.allocated_by())?;
            event(json.key("freed")?, shown, device, life.freed_by())
        })
    })?;
    json.key("earlier_blocks")?.number(found.earlier_count)?;
    json.key("segment_name")?;
    or_null(json, segment_name(device, found).as_ref(), |json, name| json.text(name))?;
    json.key("segment")?;
    or_null(json, found.segment.as_ref(), |json, segment| segment_as_json(json, segment, None))?;
    event(json.key("reserved")?, shown, device, found.reserved_by)?;
    let released = found.released_by.filter(|_| found.segment.is_none());
    event(json.key("released")?, shown, device, released)?;
    json.key("beside")?.list(&found.beside, |json, block| {
        json.object(|json| {
            json.key("address")?.number(block.address)?;
            json.key("bytes")?.number(block.bytes)?;
            json.key("state")?.text(match block.state {
                BlockState::Free => "free",
                BlockState::Allocated => "held",
                BlockState::Pending => "pending",
            })?;
            json.key("here")?.boolean(block.is_at)?;
            json.key("name")?.text(&block.life.as_ref().map(block_name).unwrap_or_default())?;
            let place = block.life.map(|it| names.place(shown.snapshot, it.life.stack));
            json.key("where")?.text(&place.unwrap_or_default())
        })
    })?;
    for (key, near) in [("below", &found.below), ("above", &found.above)] {
        json.key(key)?;
        or_null(json, near.as_ref(), |json, (segment, distance)| {
            segment_as_json(json, segment, Some(*distance))
        })?;
    }
    Ok(())
}

fn or_null<W: io::Write, T>(
    json: &mut Json<W>,
    value: Option<&T>,
    write: impl FnOnce(&mut Json<W>, &T) -> io::Result<()>,
) -> io::Result<()> {
    match value {
        Some(value) => write(json, value),
        None => json.null(),
    }
}

fn segment_as_json<W: io::Write>(
    json: &mut Json<W>,
    segment: &Segment,
    distance: Option<u64>,
) -> io::Result<()> {
    json.object(|json| {
        json.key("address")?.number(segment.address)?;
        json.key("bytes")?.number(segment.bytes)?;
        json.key("stream")?.number(segment.stream)?;
        json.key("expandable")?.boolean(segment.expandable)?;
        match distance {
            Some(distance) => json.key("distance_bytes")?.number(distance),
            None => Ok(()),
        }
    })
}

/// Writes the entry with its stack, or null if the history does not have it.
fn event<W: io::Write>(
    json: &mut Json<W>,
    shown: &Shown,
    device: &Device,
    entry: Option<usize>,
) -> io::Result<()> {
    or_null(json, entry.as_ref(), |json, &index| {
        let entry = device.entries.at(index);
        json.object(|json| {
            json.key("entry")?.number(index + 1)?;
            json.key("time_us")?.number(entry.time_us)?;
            stack(json.key("stack")?, shown.snapshot, entry.stack)
        })
    })
}

//! Writes the blocks of a device: one slice per block, and their sums by library.
//!
//! Slices of a track must nest, but lifetimes of blocks overlap freely. So each call site has as
//! many tracks of one name as it ever held blocks at once; Perfetto shows tracks of one name as
//! one. One track per block would be as simple, but viewers spend more on a track than on a slice.

use std::collections::HashMap;
use std::io::{self, Write};

use super::schema::{DebugAnnotation, TrackEvent, Type};
use super::trace::{Kind, Trace};
use super::{number, time_of};
use crate::formats::NO_STACK;
use crate::model::{Device, FrameId, Snapshot, StackId, TextId};
use crate::names::{self, Names};
use crate::{Lifetime, Lifetimes, Moment};

pub(super) fn blocks<W: Write>(
    trace: &mut Trace<W>,
    snapshot: &Snapshot,
    names: &Names,
    device: &Device,
    lifetimes: &Lifetimes,
    track: u64,
) -> io::Result<()> {
    let mut blocks = Blocks {
        trace,
        snapshot,
        names,
        device,
        track,
        libraries: Vec::new(),
        library_numbers: HashMap::new(),
        rows: Vec::new(),
        row_numbers: HashMap::new(),
        places: HashMap::new(),
    };
    blocks.tell(lifetimes)
}

/// A change of a block, in the order in which changes of the same moment are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Ends,
    Begins,
    /// A block that the program never held.
    EndsAtOnce,
}

struct Blocks<'a, W> {
    trace: &'a mut Trace<W>,
    snapshot: &'a Snapshot,
    names: &'a Names,
    device: &'a Device,
    track: u64,
    libraries: Vec<Library>,
    library_numbers: HashMap<&'a str, usize>,
    rows: Vec<Row>,
    /// Row numbers by library and site.
    row_numbers: HashMap<(usize, u64), usize>,
    places: HashMap<(StackId, TextId), Place>,
}

struct Library {
    category: u64,
    counter: u64,
    /// The parent of the tracks of the library's sites.
    blocks: u64,
    held_bytes: u64,
}

/// Tracks of a site that have no block at present.
struct Row {
    name: String,
    idle: Vec<u64>,
}

/// Origin of a block.
#[derive(Clone, Copy)]
struct Place {
    library: usize,
    row: usize,
    name: u64,
    callers: Option<u64>,
}

impl<W: Write> Blocks<'_, W> {
    fn tell(&mut self, lifetimes: &Lifetimes) -> io::Result<()> {
        let all = &lifetimes.all;
        let mut changes: Vec<(Moment, Change, u32)> = Vec::with_capacity(2 * all.len());
        for (index, life) in (0..).zip(all) {
            let end = if life.end > life.begin { Change::Ends } else { Change::EndsAtOnce };
            changes.extend([(life.begin, Change::Begins, index), (life.end, end, index)]);
        }
        changes.sort_unstable();
        let mut tracks = vec![0; all.len()];
        let mut changed = Vec::new();
        for of_moment in changes.chunk_by(|left, right| left.0 == right.0) {
            let time_us = time_of(self.device, of_moment[0].0);
            for &(moment, change, index) in of_moment {
                let (life, track) = (&all[index as usize], &mut tracks[index as usize]);
                let place = self.place(life)?;
                let held_bytes = &mut self.libraries[place.library].held_bytes;
                if change == Change::Begins {
                    *held_bytes = held_bytes.wrapping_add(life.bytes);
                    *track = self.begins(life, place, time_us)?;
                } else {
                    *held_bytes = held_bytes.wrapping_sub(life.bytes);
                    self.rows[place.row].idle.push(*track);
                    self.trace.event(time_us, TrackEvent::of(*track, Type::SliceEnd))?;
                }
                // No slice is closed after the end of the history: it ends with the trace.
                if moment <= lifetimes.last {
                    changed.push(place.library);
                }
            }
            changed.sort_unstable();
            changed.dedup();
            for library in changed.drain(..) {
                let Library { counter, held_bytes, .. } = self.libraries[library];
                self.trace.count(counter, time_us, number(held_bytes))?;
            }
        }
        Ok(())
    }

    /// Returns the track on which the block is drawn.
    fn begins(&mut self, life: &Lifetime, place: Place, time_us: u64) -> io::Result<u64> {
        let row = &mut self.rows[place.row];
        let library = &self.libraries[place.library];
        let track = match row.idle.pop() {
            Some(track) => track,
            None => self.trace.track(library.blocks, Kind::Site, &row.name)?,
        };
        let mut event = TrackEvent::of(track, Type::SliceBegin);
        event.category_iids = vec![library.category];
        event.name_iid = place.name;
        event.debug_annotations = self.said(life, place);
        self.trace.event(time_us, event)?;
        Ok(track)
    }

    fn said(&mut self, life: &Lifetime, place: Place) -> Vec<DebugAnnotation> {
        let mut said = vec![
            self.trace.key("bytes").number(life.bytes),
            self.trace.key("address").address(life.address),
            self.trace.key("stream").number(life.stream),
        ];
        if let Some(callers) = place.callers {
            said.push(self.trace.key("called by").text(callers));
        }
        let range = life.allocated_by().map(|index| self.device.entries.at(index).user_metadata);
        if let Some(range) = range.filter(|range| !range.is_empty()) {
            let text = self.trace.text(self.snapshot.texts.get(range));
            said.push(self.trace.key("range").text(text));
        }
        said
    }

    /// Computed once per stack.
    fn place(&mut self, life: &Lifetime) -> io::Result<Place> {
        let key = (life.stack, life.category);
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let label = |frame: FrameId| self.names.label(frame);
        let site = self.names.site(self.snapshot, life.stack).map_or(NO_STACK, label);
        let callers = self.names.callers(self.snapshot, life.stack).take(CALLERS_SHOWN);
        let callers: Vec<&str> = callers.map(label).collect();
        let callers = (!callers.is_empty()).then(|| self.trace.text(&callers.join(" < ")));
        let name = self.trace.name(site);
        let library = self.library(life.category)?;
        let row = *self.row_numbers.entry((library, name)).or_insert_with(|| {
            self.rows.push(Row { name: site.into(), idle: Vec::new() });
            self.rows.len() - 1
        });
        let place = Place { library, row, name, callers };
        self.places.insert(key, place);
        Ok(place)
    }

    fn library(&mut self, category: TextId) -> io::Result<usize> {
        let name = names::library(self.snapshot, category);
        if let Some(library) = self.library_numbers.get(name) {
            return Ok(*library);
        }
        self.libraries.push(Library {
            category: self.trace.category(name),
            counter: self.trace.track(self.track, Kind::Counter, &format!("held by {name}"))?,
            blocks: self.trace.track(self.track, Kind::Blocks, &format!("blocks of {name}"))?,
            held_bytes: 0,
        });
        self.library_numbers.insert(name, self.libraries.len() - 1);
        Ok(self.libraries.len() - 1)
    }
}

const CALLERS_SHOWN: usize = 4;

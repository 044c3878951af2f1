//! Checks whether a snapshot is sound. PyTorch's viewer validates nothing: a block outside all
//! segments makes it show an empty page. A snapshot restored from the file of a killed process is
//! checked before it is written (`persistent`), every other snapshot by the tests.
//!
//! * S1: segments are sorted by device and address, and those of one device do not overlap.
//! * S2: the blocks of a segment tile it: the first at its base, each next at the end of the one
//!   before, the last at its end; none is empty.
//! * S3: an active block is as large as what was requested, or larger.
//! * S4: every device of a segment has a list of entries.
//! * S5: times in a list never decrease.
//! * S6: numbers that the viewer keeps as floating point are below 2^53.
//! * S7: the entries can be undone from the newest to the oldest, starting from the segments, as
//!   the
//!   viewer does to show an earlier moment.
//! * S8: if no entry is missing, replaying the entries from an empty state gives the segments.
//!
//! Sums are not checked: they are computed from the blocks when written.

use std::fmt::{self, Display, Formatter};

use crate::entry::Entry;
use crate::replay::World;
use crate::snapshot::{Block, Device, Segment, Snapshot};

/// The first violation found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Number of the invariant, 1 to 8.
    pub invariant: u8,
    /// Location, such as `device 0, entry 17`.
    pub place: String,
    /// Description with the values.
    pub what: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "S{}: {}: {}", self.invariant, self.place, self.what)
    }
}

impl std::error::Error for Problem {}

impl Snapshot {
    pub fn check(&self) -> Result<(), Problem> {
        check_order(&self.segments)?;
        check_order(&self.host_segments)?;
        check_order(&self.graph_segments)?;
        let all = self.segments.iter().chain(&self.host_segments).chain(&self.graph_segments);
        for (index, segment) in all.enumerate() {
            let place = || format!("segment {index} at {:#x}", segment.address);
            check_segment(segment).map_err(|(number, what)| problem(number, place(), what))?;
        }
        let mut devices: Vec<Part> = self.devices.iter().enumerate().map(Part::of_device).collect();
        for segment in &self.segments {
            let Some(part) = devices.get_mut(segment.device as usize) else {
                let place = format!("segment at {:#x}", segment.address);
                let what = format!("device {} of {}", segment.device, self.devices.len());
                return Err(problem(4, place, what));
            };
            part.segments.push(segment);
        }
        let segments = self.host_segments.iter().collect();
        let host = Part { name: "host".to_string(), history: &self.host, segments };
        devices.iter().chain([&host]).try_for_each(Part::check)
    }
}

fn check_order(segments: &[Segment]) -> Result<(), Problem> {
    for (index, pair) in segments.windows(2).enumerate() {
        let [left, right] = pair else { continue };
        let apart = (left.device, left.end()) <= (right.device, right.address);
        if !apart || (left.device, left.address) >= (right.device, right.address) {
            let place = format!("segment {} at {:#x}", index + 1, right.address);
            let what = format!("overlaps the one before, or is out of order: {:#x}", left.end());
            return Err(problem(1, place, what));
        }
    }
    Ok(())
}

/// History of a device or the host, and the state it led to.
struct Part<'a> {
    name: String,
    history: &'a Device,
    segments: Vec<&'a Segment>,
}

impl<'a> Part<'a> {
    fn of_device((ordinal, history): (usize, &'a Device)) -> Part<'a> {
        Part { name: format!("device {ordinal}"), history, segments: Vec::new() }
    }

    fn check(&self) -> Result<(), Problem> {
        self.check_times()?;
        self.check_backwards()?;
        self.check_forwards()
    }

    fn check_times(&self) -> Result<(), Problem> {
        let mut last_ns = 0;
        for (index, entry) in self.history.entries.iter().enumerate() {
            let place = || format!("{}, entry {index}", self.name);
            if entry.time_ns < last_ns {
                let what = format!("time {} ns after {last_ns} ns", entry.time_ns);
                return Err(problem(5, place(), what));
            }
            last_ns = entry.time_ns;
            let numbers = [entry.address, entry.bytes, entry.stream];
            if let Some(number) = numbers.iter().find(|&&number| number >= NUMBER_END) {
                return Err(problem(6, place(), format!("{number:#x} is not exact in the viewer")));
            }
        }
        Ok(())
    }

    fn check_backwards(&self) -> Result<(), Problem> {
        let mut world = self.at_end();
        for (index, entry) in self.history.entries.iter().enumerate().rev() {
            world.undo(entry).map_err(|what| problem(7, self.place_of(index, entry), what))?;
        }
        Ok(())
    }

    fn check_forwards(&self) -> Result<(), Problem> {
        if !self.history.recorded_from_start || self.history.dropped_count > 0 {
            return Ok(());
        }
        let mut world = World::default();
        for (index, entry) in self.history.entries.iter().enumerate() {
            world.apply(entry).map_err(|what| problem(8, self.place_of(index, entry), what))?;
        }
        let place = || format!("{}, at the end", self.name);
        world.same_as(&self.at_end()).map_err(|what| problem(8, place(), what))
    }

    fn at_end(&self) -> World {
        World::at_end(self.segments.iter().copied())
    }

    fn place_of(&self, index: usize, entry: &Entry) -> String {
        format!("{}, entry {index} ({:?} at {:#x})", self.name, entry.action, entry.address)
    }
}

/// The viewer's numbers have 53 bits.
const NUMBER_END: u64 = 1 << 53;

fn check_segment(segment: &Segment) -> Result<(), (u8, String)> {
    let mut end = segment.address;
    for (index, block) in segment.blocks.iter().enumerate() {
        if block.address != end {
            return Err((2, format!("block {index} is at {:#x}, not {end:#x}", block.address)));
        }
        check_block(block).map_err(|(number, what)| (number, format!("block {index} {what}")))?;
        end = end.saturating_add(block.bytes);
    }
    if end != segment.end() || segment.bytes == 0 {
        let what = format!("its blocks end at {end:#x}, and it at {:#x}", segment.end());
        return Err((2, what));
    }
    if segment.end() >= NUMBER_END || segment.stream >= NUMBER_END {
        return Err((6, format!("{:#x} is not exact in the viewer", segment.stream)));
    }
    Ok(())
}

fn check_block(block: &Block) -> Result<(), (u8, String)> {
    if block.bytes == 0 {
        return Err((2, "is empty".into()));
    }
    if block.state.is_active() && block.requested_bytes > block.bytes {
        let what = format!("of {} bytes, requested {}", block.bytes, block.requested_bytes);
        return Err((3, what));
    }
    Ok(())
}

fn problem(invariant: u8, place: String, what: String) -> Problem {
    Problem { invariant, place, what }
}

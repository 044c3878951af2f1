//! Whether a snapshot is sound. PyTorch's viewer validates nothing: a block that lies in no segment
//! makes it show an empty page. What is restored from the file of a killed process is checked before it is
//! written (`lasting`), every other snapshot by the tests.
//!
//! * S1: segments are sorted by device and address, and those of one device do not overlap.
//! * S2: the blocks of a segment tile it: the first at its base, each next at the end of the one
//!   before, the last at its end; none is empty.
//! * S3: an active block is as large as what was requested, or larger.
//! * S4: every device of a segment has a list of entries.
//! * S5: times in a list never go back.
//! * S6: numbers that the viewer keeps as floating point are below 2^53.
//! * S7: the entries can be undone, from the newest to the oldest, starting from the segments: what
//!   the viewer does to show an earlier moment.
//! * S8: where nothing is missing, doing the entries from nothing gives the segments.
//!
//! Sums are not checked: they are computed from the blocks when written.

use std::fmt::{self, Display, Formatter};

use crate::entry::Entry;
use crate::replay::World;
use crate::snapshot::{Block, Segment, Snapshot};

/// The first thing found to be wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The number of the invariant, 1 to 8.
    pub invariant: u8,
    /// Where: `device 0, entry 17`.
    pub place: String,
    /// What is wrong, with the values.
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
        self.check_order()?;
        for (index, segment) in self.segments.iter().enumerate() {
            let place = || format!("segment {index} at {:#x}", segment.address);
            check_segment(segment).map_err(|(number, what)| problem(number, place(), what))?;
            if segment.device as usize >= self.devices.len() {
                let what = format!("device {} of {}", segment.device, self.devices.len());
                return Err(problem(4, place(), what));
            }
        }
        for ordinal in 0..self.devices.len() {
            self.check_times(ordinal)?;
            self.check_backwards(ordinal)?;
            self.check_forwards(ordinal)?;
        }
        Ok(())
    }

    fn check_order(&self) -> Result<(), Problem> {
        for (index, pair) in self.segments.windows(2).enumerate() {
            let [left, right] = pair else { continue };
            let apart = (left.device, left.end()) <= (right.device, right.address);
            if !apart || (left.device, left.address) >= (right.device, right.address) {
                let place = format!("segment {} at {:#x}", index + 1, right.address);
                let what =
                    format!("overlaps the one before, or is out of order: {:#x}", left.end());
                return Err(problem(1, place, what));
            }
        }
        Ok(())
    }

    fn check_times(&self, ordinal: usize) -> Result<(), Problem> {
        let mut last_ns = 0;
        for (index, entry) in self.devices[ordinal].entries.iter().enumerate() {
            let place = || format!("device {ordinal}, entry {index}");
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

    fn check_backwards(&self, ordinal: usize) -> Result<(), Problem> {
        let mut world = World::at_end(self.segments_of(ordinal));
        for (index, entry) in self.devices[ordinal].entries.iter().enumerate().rev() {
            world.undo(entry).map_err(|what| problem(7, place_of(ordinal, index, entry), what))?;
        }
        Ok(())
    }

    fn check_forwards(&self, ordinal: usize) -> Result<(), Problem> {
        let device = &self.devices[ordinal];
        if !device.recorded_from_start || device.dropped_count > 0 {
            return Ok(());
        }
        let mut world = World::default();
        for (index, entry) in device.entries.iter().enumerate() {
            world.apply(entry).map_err(|what| problem(8, place_of(ordinal, index, entry), what))?;
        }
        let end = World::at_end(self.segments_of(ordinal));
        world
            .same_as(&end)
            .map_err(|what| problem(8, format!("device {ordinal}, at the end"), what))
    }

    fn segments_of(&self, ordinal: usize) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.device as usize == ordinal)
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

fn place_of(ordinal: usize, index: usize, entry: &Entry) -> String {
    format!("device {ordinal}, entry {index} ({:?} at {:#x})", entry.action, entry.address)
}

fn problem(invariant: u8, place: String, what: String) -> Problem {
    Problem { invariant, place, what }
}

//! Applies and undoes entries: what was live and what was reserved before or after each of them.
//!
//! The rules are those of PyTorch's viewer, which undoes a history to show an earlier moment. Where
//! the viewer would silently show wrong contents, this module returns an error.
//!
//! The viewer has one defect. When it undoes an unmapping, it joins the memory with any adjacent
//! segment of the same stream, expandable or not, and then does not find that segment again. This
//! module joins expandable segments only. To avoid the defect, record `SegmentAlloc` and
//! `SegmentFree` for all memory that is mapped and unmapped whole.

use std::collections::BTreeMap;

use crate::entry::{Action, Entry};
use crate::snapshot::{BlockState, Segment};

/// Reserved and live memory of one device, by address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct World {
    ranges: BTreeMap<u64, Range>,
    live: BTreeMap<u64, Live>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    bytes: u64,
    stream: u64,
    /// Whether it is expandable memory, of which parts may be mapped and unmapped.
    expandable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Live {
    requested_bytes: u64,
    /// Bytes covered: those of the block if they are known, else the requested bytes.
    bytes: u64,
    pending: bool,
}

impl World {
    /// Returns the state that the snapshot shows at the end.
    pub(crate) fn at_end<'a>(segments: impl Iterator<Item = &'a Segment>) -> World {
        let mut world = World::default();
        for segment in segments {
            let Segment { bytes, stream, expandable, .. } = *segment;
            world.ranges.insert(segment.address, Range { bytes, stream, expandable });
            for block in segment.blocks.iter().filter(|block| block.state.is_active()) {
                let live = Live {
                    requested_bytes: block.requested_bytes,
                    bytes: block.bytes,
                    pending: block.state == BlockState::Pending,
                };
                world.live.insert(block.address, live);
            }
        }
        world
    }

    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        match entry.action {
            Action::Alloc => self.add_block(entry, false),
            Action::FreeRequested => self.set_pending(entry, true),
            Action::FreeCompleted => self.remove_block(entry, true),
            Action::Free => self.remove_block(entry, false),
            Action::SegmentAlloc => self.add_range(entry, false),
            Action::SegmentFree => self.remove_segment(entry),
            Action::SegmentMap => self.add_range(entry, true),
            Action::SegmentUnmap => self.remove_part(entry),
            Action::OutOfMemory | Action::Snapshot => Ok(()),
        }
    }

    pub(crate) fn undo(&mut self, entry: &Entry) -> Result<(), String> {
        match entry.action {
            Action::Alloc => self.remove_block(entry, false),
            Action::FreeRequested => self.set_pending(entry, false),
            Action::FreeCompleted => self.add_block(entry, true),
            Action::Free => self.add_block(entry, false),
            Action::SegmentAlloc => self.remove_segment(entry),
            Action::SegmentFree => self.add_range(entry, false),
            Action::SegmentMap => self.remove_part(entry),
            Action::SegmentUnmap => self.add_range(entry, true),
            Action::OutOfMemory | Action::Snapshot => Ok(()),
        }
    }

    /// Checks that the entries, applied to an empty state, led to the state of the snapshot.
    pub(crate) fn same_as(&self, end: &World) -> Result<(), String> {
        for (address, live) in &self.live {
            match end.live.get(address) {
                None => return Err(format!("{address:#x} was never freed, and no block is live")),
                Some(block) if !block.agrees(live) => {
                    return Err(format!("{address:#x} is {block:?}, and its entries say {live:?}"));
                }
                Some(_) => {}
            }
        }
        if let Some(address) = end.live.keys().find(|&address| !self.live.contains_key(address)) {
            return Err(format!("the block at {address:#x} is live, and no entry says so"));
        }
        let (ours, theirs) = (self.coalesced(), end.coalesced());
        let differs = |(address, range): &(&u64, &Range)| theirs.get(address) != Some(range);
        if let Some((address, range)) = ours.iter().find(differs) {
            return Err(format!("{range:?} at {address:#x} was recorded, and is no segment"));
        }
        if let Some(address) = theirs.keys().find(|&address| !ours.contains_key(address)) {
            return Err(format!("the segment at {address:#x} was never recorded"));
        }
        Ok(())
    }

    fn add_block(&mut self, entry: &Entry, pending: bool) -> Result<(), String> {
        let end = end_of(entry)?;
        if let Some((address, live)) = self.live_before(end)
            && address + live.bytes.max(1) > entry.address
        {
            return Err(format!("{} bytes are live at {address:#x}", live.bytes));
        }
        let range = self.ranges.range(..=entry.address).next_back();
        if range.is_none_or(|(address, range)| end > address + range.bytes) {
            return Err(format!("{} bytes lie in no segment", entry.bytes));
        }
        let live = Live { requested_bytes: entry.bytes, bytes: entry.bytes, pending };
        self.live.insert(entry.address, live);
        Ok(())
    }

    fn remove_block(&mut self, entry: &Entry, pending: bool) -> Result<(), String> {
        self.expect_live(entry, pending)?;
        self.live.remove(&entry.address);
        Ok(())
    }

    fn set_pending(&mut self, entry: &Entry, pending: bool) -> Result<(), String> {
        self.expect_live(entry, !pending)?.pending = pending;
        Ok(())
    }

    fn expect_live(&mut self, entry: &Entry, pending: bool) -> Result<&mut Live, String> {
        let live = self.live.get_mut(&entry.address).ok_or("no block is live there")?;
        if live.pending != pending {
            let state = if live.pending { "is" } else { "is not" };
            return Err(format!("the block {state} pending free"));
        }
        if live.requested_bytes != entry.bytes {
            return Err(format!("{} bytes, and {} elsewhere", entry.bytes, live.requested_bytes));
        }
        Ok(live)
    }

    fn add_range(&mut self, entry: &Entry, expandable: bool) -> Result<(), String> {
        let end = end_of(entry)?;
        if let Some((address, range)) = self.ranges.range(..end).next_back()
            && address + range.bytes > entry.address
        {
            return Err(format!("{} bytes are reserved at {address:#x}", range.bytes));
        }
        let Entry { address, bytes, stream, .. } = *entry;
        self.ranges.insert(address, Range { bytes, stream, expandable });
        if expandable {
            self.coalesce(address);
        }
        Ok(())
    }

    fn remove_segment(&mut self, entry: &Entry) -> Result<(), String> {
        let range = self.ranges.get(&entry.address).ok_or("no segment begins there")?;
        if range.expandable || range.bytes != entry.bytes {
            return Err(format!("{} bytes, and the segment is {range:?}", entry.bytes));
        }
        self.expect_no_live(entry)?;
        self.ranges.remove(&entry.address);
        Ok(())
    }

    /// Removes a part from an expandable segment, which leaves up to two segments.
    fn remove_part(&mut self, entry: &Entry) -> Result<(), String> {
        let end = end_of(entry)?;
        let around = self.ranges.range(..=entry.address).next_back();
        let (&address, &range) = around
            .filter(|(address, range)| end <= **address + range.bytes && range.expandable)
            .ok_or("no expandable segment contains it")?;
        self.expect_no_live(entry)?;
        self.ranges.remove(&address);
        for (first, last) in [(address, entry.address), (end, address + range.bytes)] {
            if first < last {
                self.ranges.insert(first, Range { bytes: last - first, ..range });
            }
        }
        Ok(())
    }

    fn expect_no_live(&self, entry: &Entry) -> Result<(), String> {
        match self.live_before(end_of(entry)?) {
            Some((address, live)) if address + live.bytes.max(1) > entry.address => {
                Err(format!("{} bytes are live in it, at {address:#x}", live.bytes))
            }
            _ => Ok(()),
        }
    }

    fn live_before(&self, end: u64) -> Option<(u64, Live)> {
        self.live.range(..end).next_back().map(|(&address, &live)| (address, live))
    }

    /// Joins the range with adjacent ranges, because the viewer shows adjacent mapped memory as one
    /// segment.
    fn coalesce(&mut self, address: u64) {
        let before = self.ranges.range(..address).next_back().map(|(&before, _)| before);
        for left in [Some(address), before].into_iter().flatten() {
            let range = self.ranges[&left];
            let right = left + range.bytes;
            let next = self.ranges.get(&right).copied();
            if let Some(next) = next.filter(|next| next.joins(&range)) {
                self.ranges.remove(&right);
                self.ranges.insert(left, Range { bytes: range.bytes + next.bytes, ..range });
            }
        }
    }

    fn coalesced(&self) -> BTreeMap<u64, Range> {
        let mut world = World { ranges: self.ranges.clone(), live: BTreeMap::new() };
        for address in self.ranges.keys().rev() {
            world.coalesce(*address);
        }
        world.ranges
    }
}

impl Live {
    /// Compares with the state from entries, which do not contain a block's size.
    fn agrees(&self, entry: &Live) -> bool {
        (self.requested_bytes, self.pending) == (entry.requested_bytes, entry.pending)
    }
}

impl Range {
    fn joins(&self, other: &Range) -> bool {
        self.expandable && other.expandable && self.stream == other.stream
    }
}

/// Returns the end of the entry's bytes. A block of zero bytes still occupies its address.
fn end_of(entry: &Entry) -> Result<u64, String> {
    let end = entry.address.checked_add(entry.bytes.max(1));
    end.ok_or_else(|| format!("{} bytes are too many", entry.bytes))
}

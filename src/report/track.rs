//! History of one device as events of the page, each of which changes one thing.
//!
//! The page counts its own events. Moment n is the time after the first n events. A block that
//! event e (from 0) allocates is live from moment e + 1; one that event f frees is live until
//! moment f. So the sums at all moments follow from the rows alone.
//!
//! An entry that changes nothing (a snapshot, an annotation) is no event. An entry that ends one
//! block and begins another is two events.

use std::collections::HashMap;

use cachealloc_analysis::model::{Action, Device, PoolId, StackId};
use cachealloc_analysis::waste::{Pattern, Waste};
use cachealloc_analysis::{Lifetime, Lifetimes, Moment, versions_of};

#[derive(Debug, Default)]
pub(crate) struct Track {
    /// Time of each event in microseconds since 1970. Never decreases.
    pub times_us: Vec<u64>,
    /// Rows by the moment at which they begin.
    pub rows: Vec<Row>,
    /// Bytes reserved before the first event.
    pub reserved_before: u64,
    pub reserves: Vec<Reserve>,
    pub ooms: Vec<Oom>,
    pub lifetimes: Lifetimes,
    /// Rows whose number of earlier frees of their address, a part of PyTorch's name for them, is
    /// not the number of earlier rows of that address, which the page counts.
    pub other_versions: Vec<(u32, u32)>,
    /// Number of entries up to each event. Never decreases.
    after_entries: Vec<Moment>,
}

/// One block. There may be millions, so a row does not copy what its lifetime and the entries tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// First moment at which the block is live; 0 if it is from before the recording.
    pub from: u32,
    /// Last moment at which it is live. `None` if it was never freed.
    pub until: Option<u32>,
    /// Index of its lifetime in `Track::lifetimes`.
    life: u32,
    /// A bit for each of [`PATTERNS`] that it shows.
    pub patterns: u8,
}

const _: () = assert!(size_of::<Row>() == 20);

/// Patterns written for each block. The page computes itself which blocks were never freed.
pub(crate) const PATTERNS: [Pattern; 3] = [Pattern::Temporary, Pattern::Early, Pattern::Late];

impl Row {
    pub(crate) fn shows(&self, pattern: Pattern) -> bool {
        let bit = PATTERNS.iter().position(|&known| known == pattern);
        bit.is_some_and(|bit| self.patterns & 1 << bit != 0)
    }
}

/// A change of the reserved memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reserve {
    pub event: u32,
    /// Change in bytes.
    pub bytes: i64,
    pub address: u64,
    pub stream: u64,
    pub pool: PoolId,
    /// Whether it is a part of an address range that grows and shrinks in parts.
    pub part: bool,
    pub stack: StackId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Oom {
    pub event: u32,
    /// Moment just before its entry, which is also the index of the entry.
    pub moment: Moment,
    pub requested_bytes: u64,
    pub free_bytes: u64,
    pub stack: StackId,
}

/// A change by an entry. Several changes of one entry are applied in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// End of the lifetime with this index.
    Ends(u32),
    Begins(u32),
    /// The reserve or release of the entry itself.
    Reserve,
    Oom,
}

impl Track {
    pub(crate) fn of(device: &Device) -> Track {
        let lifetimes = Lifetimes::of(device);
        let mut track = Track::default();
        let waste = Waste::of(device, &lifetimes);
        let rows = lifetimes.all.iter().enumerate().map(|(index, life)| row(&waste, index, life));
        let mut rows: Vec<Row> = rows.collect();
        drop(waste);
        for (moment, change) in changes(device, &lifetimes) {
            let entry = device.entries.at(moment as usize - 1);
            let event = track.event(entry.time_us, moment);
            let bytes = i64::try_from(entry.bytes).unwrap_or(i64::MAX);
            match change {
                Change::Ends(life) => rows[life as usize].until = Some(event),
                Change::Begins(life) => rows[life as usize].from = event + 1,
                Change::Reserve => {
                    let gone = matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap);
                    let part = matches!(entry.action, Action::SegmentMap | Action::SegmentUnmap);
                    track.reserves.push(Reserve {
                        event,
                        bytes: if gone { -bytes } else { bytes },
                        address: entry.address,
                        stream: entry.stream,
                        pool: entry.pool,
                        part,
                        stack: entry.stack,
                    });
                }
                Change::Oom => track.ooms.push(Oom {
                    event,
                    moment: moment - 1,
                    requested_bytes: entry.bytes,
                    free_bytes: entry.address,
                    stack: entry.stack,
                }),
            }
        }
        let mut shown = lifetimes.all.iter().map(|life| life.begin < life.end);
        rows.retain(|_| shown.next().unwrap_or(false));
        // Not the stable sort, which needs a copy of half of the rows.
        rows.sort_unstable_by_key(|row| (row.from, row.life));
        rows.shrink_to_fit();
        track.other_versions = other_versions(device, &lifetimes, &rows);
        track.rows = rows;
        track.reserved_before = reserved_before(device, &track.reserves);
        track.lifetimes = lifetimes;
        track
    }

    pub(crate) fn life(&self, row: &Row) -> &Lifetime {
        &self.lifetimes.all[row.life as usize]
    }

    /// Returns the stack that freed the block. Returns an empty one if the history does not have
    /// the free.
    pub(crate) fn freed_by(&self, row: &Row, device: &Device) -> StackId {
        let entry = self.life(row).freed_by();
        entry.map_or(StackId::NONE, |entry| device.entries.at(entry).stack)
    }

    /// Returns the number of moments after its free in which a stream may still use the block.
    pub(crate) fn waiting_moments(&self, row: &Row) -> u32 {
        let life = self.life(row);
        match row.until {
            Some(until) if life.reusable > life.end => {
                self.page_moment(life.reusable - 1).saturating_sub(until)
            }
            _ => 0,
        }
    }

    /// Returns the bytes that the program held at each moment of the page. Additions wrap around
    /// and so never fail.
    pub(crate) fn live_bytes(&self) -> Vec<u64> {
        let mut sums = vec![0u64; self.times_us.len() + 2];
        for row in &self.rows {
            let bytes = self.life(row).bytes;
            let begin = &mut sums[row.from as usize];
            *begin = begin.wrapping_add(bytes);
            if let Some(until) = row.until {
                let end = &mut sums[until as usize + 1];
                *end = end.wrapping_sub(bytes);
            }
        }
        sums.pop();
        let mut now = 0u64;
        for sum in &mut sums {
            now = now.wrapping_add(*sum);
            *sum = now;
        }
        sums
    }

    fn event(&mut self, time_us: u64, moment: Moment) -> u32 {
        let last = self.times_us.last().copied().unwrap_or(0);
        self.times_us.push(time_us.max(last));
        self.after_entries.push(moment);
        self.times_us.len() as u32 - 1
    }

    /// Returns the moment of the page at which this many entries have happened.
    pub(crate) fn page_moment(&self, moment: Moment) -> u32 {
        self.after_entries.partition_point(|&after| after <= moment) as u32
    }

    /// Returns the reserved bytes at a moment of the page.
    pub(crate) fn reserved_at(&self, page_moment: u32) -> u64 {
        let changes = self.reserves.iter().filter(|change| change.event < page_moment);
        let change: i128 = changes.map(|change| i128::from(change.bytes)).sum();
        unsigned(i128::from(self.reserved_before) + change)
    }
}

/// Creates a row whose begin and end are still missing.
fn row(waste: &Waste, index: usize, life: &Lifetime) -> Row {
    let bit =
        |(bit, &pattern): (usize, &Pattern)| u8::from(waste.shows(pattern, index, life)) << bit;
    let patterns = PATTERNS.iter().enumerate().map(bit).sum();
    Row { from: 0, until: None, life: index as u32, patterns }
}

fn other_versions(device: &Device, lifetimes: &Lifetimes, rows: &[Row]) -> Vec<(u32, u32)> {
    let versions = versions_of(device, lifetimes);
    let mut earlier: HashMap<u64, u32> = HashMap::new();
    let mut others = Vec::new();
    for (index, row) in (0..).zip(rows) {
        let count = earlier.entry(lifetimes.all[row.life as usize].address).or_default();
        let version = versions[row.life as usize];
        if version != *count {
            others.push((index, version));
        }
        *count += 1;
    }
    others
}

/// Returns all changes in order. There may be ten million, so only the order of the lifetimes is
/// stored.
fn changes(device: &Device, lifetimes: &Lifetimes) -> impl Iterator<Item = (Moment, Change)> {
    let life = |index: u32| &lifetimes.all[index as usize];
    // A block that only waits for a stream is not the program's.
    let is_held = move |index: &u32| life(*index).begin < life(*index).end;
    let held = || (0..lifetimes.all.len() as u32).filter(is_held);
    let mut begins: Vec<u32> = held().filter(|&index| life(index).begin > 0).collect();
    begins.sort_unstable_by_key(|&index| (life(index).begin, index));
    let mut ends: Vec<u32> = held().filter(|&index| life(index).end <= lifetimes.last).collect();
    ends.sort_unstable_by_key(|&index| (life(index).end, index));
    let (mut begins, mut ends) = (begins.into_iter().peekable(), ends.into_iter().peekable());
    let mut entries = (1..)
        .zip(&device.entries)
        .filter_map(|(moment, entry)| Some((moment, of_entry(entry.action)?)));
    let mut next_of_entry = entries.next();
    std::iter::from_fn(move || {
        let end = ends.peek().map(|&index| (life(index).end, Change::Ends(index)));
        let begin = begins.peek().map(|&index| (life(index).begin, Change::Begins(index)));
        let next = [end, begin, next_of_entry].into_iter().flatten().min()?;
        match next.1 {
            Change::Ends(_) => _ = ends.next(),
            Change::Begins(_) => _ = begins.next(),
            Change::Reserve | Change::Oom => next_of_entry = entries.next(),
        }
        Some(next)
    })
}

/// Returns the change that an entry is besides the begin or end of a lifetime.
fn of_entry(action: Action) -> Option<Change> {
    match action {
        Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap => {
            Some(Change::Reserve)
        }
        Action::OutOfMemory => Some(Change::Oom),
        _ => None,
    }
}

/// Returns the reserved bytes before the first event, computed backwards from those at the end,
/// which the file has.
fn reserved_before(device: &Device, reserves: &[Reserve]) -> u64 {
    let end: i128 = device.segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    let change: i128 = reserves.iter().map(|change| i128::from(change.bytes)).sum();
    unsigned(end - change)
}

fn unsigned(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}

//! What happened on one device, as blocks with a begin and an end.
//!
//! Moments are counted in events: at moment 0 nothing has happened, at moment n the first n events
//! have. A block that event e (from 0) allocates is alive from moment e + 1; one that event f frees is
//! alive until moment f. Each event changes one thing, so the sums at all moments follow from the rows.

use std::collections::HashMap;

use cachealloc_analysis::model::{Action, BlockState, Device, StackId, TextId};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Track {
    /// Microseconds since 1970 of each event. Never falls.
    pub times_us: Vec<u64>,
    /// Blocks from before the recording first, then by their begin.
    pub rows: Vec<Row>,
    /// What was reserved before the first event.
    pub reserved_before: u64,
    /// By how many bytes an event changed what is reserved.
    pub reserves: Vec<(u32, i64)>,
    pub ooms: Vec<Oom>,
    /// How many entries the file has.
    pub entries_count: usize,
}

/// One block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The first moment at which it is alive; 0 where it is from before the recording.
    pub from: u32,
    /// The last one. `None`: it was never freed.
    pub until: Option<u32>,
    pub bytes: u64,
    pub stack: StackId,
    pub category: TextId,
    pub stream: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oom {
    pub event: u32,
    pub requested_bytes: u64,
    pub free_bytes: u64,
    pub stack: StackId,
}

impl Track {
    /// `frees_name_the_allocation`: the stack of a free is that of the block's allocation, as in
    /// PyTorch's own files.
    pub fn of(device: &Device, frees_name_the_allocation: bool) -> Track {
        let mut replay = Replay {
            track: Track { entries_count: device.entries.len(), ..Track::default() },
            alive: HashMap::new(),
            before: Vec::new(),
            frees_name_the_allocation,
        };
        for entry in &device.entries {
            replay.entry(entry);
        }
        replay.remaining(device);
        let mut track = replay.track;
        track.rows.splice(0..0, replay.before);
        track
    }

    pub fn events_count(&self) -> u32 {
        self.times_us.len() as u32
    }
}

struct Replay {
    track: Track,
    /// The row of the block at an address.
    alive: HashMap<u64, usize>,
    before: Vec<Row>,
    frees_name_the_allocation: bool,
}

impl Replay {
    fn entry(&mut self, entry: &cachealloc_analysis::model::Entry) {
        let bytes = i64::try_from(entry.bytes).unwrap_or(i64::MAX);
        match entry.action {
            Action::Alloc => {
                // Its free is missing: two blocks cannot be in one place.
                if let Some(row) = self.alive.remove(&entry.address) {
                    self.end(row, entry.time_us);
                }
                let event = self.event(entry.time_us);
                self.alive.insert(entry.address, self.track.rows.len());
                self.track.rows.push(Row {
                    from: event + 1,
                    until: None,
                    bytes: entry.bytes,
                    stack: entry.stack,
                    category: entry.category,
                    stream: entry.stream,
                });
            }
            Action::Free | Action::FreeCompleted => match self.alive.remove(&entry.address) {
                Some(row) => self.end(row, entry.time_us),
                None => {
                    let event = self.event(entry.time_us);
                    let known = self.frees_name_the_allocation;
                    self.before.push(Row {
                        from: 0,
                        until: Some(event),
                        bytes: entry.bytes,
                        stack: if known { entry.stack } else { StackId::NONE },
                        category: entry.category,
                        stream: entry.stream,
                    });
                }
            },
            Action::SegmentAlloc | Action::SegmentMap => self.reserve(entry.time_us, bytes),
            Action::SegmentFree | Action::SegmentUnmap => self.reserve(entry.time_us, -bytes),
            Action::OutOfMemory => {
                let event = self.event(entry.time_us);
                self.track.ooms.push(Oom {
                    event,
                    requested_bytes: entry.bytes,
                    free_bytes: entry.address,
                    stack: entry.stack,
                });
            }
            // Still in use until the free is complete; the others change nothing.
            Action::FreeRequested | Action::Snapshot | Action::Annotate | Action::Other => {}
        }
    }

    fn event(&mut self, time_us: u64) -> u32 {
        let last = self.track.times_us.last().copied().unwrap_or(0);
        self.track.times_us.push(time_us.max(last));
        self.track.events_count() - 1
    }

    fn end(&mut self, row: usize, time_us: u64) {
        let event = self.event(time_us);
        self.track.rows[row].until = Some(event);
    }

    fn reserve(&mut self, time_us: u64, bytes: i64) {
        let event = self.event(time_us);
        self.track.reserves.push((event, bytes));
    }

    /// Blocks that are there although no entry tells of them, and what was reserved at first.
    fn remaining(&mut self, device: &Device) {
        let mut reserved: i128 = 0;
        for segment in &device.segments {
            reserved += i128::from(segment.bytes);
            for block in &segment.blocks {
                if block.state != BlockState::Free && !self.alive.contains_key(&block.address) {
                    self.before.push(Row {
                        from: 0,
                        until: None,
                        bytes: if block.requested_bytes > 0 {
                            block.requested_bytes
                        } else {
                            block.bytes
                        },
                        stack: block.stack,
                        category: TextId::EMPTY,
                        stream: segment.stream,
                    });
                }
            }
        }
        reserved -= self.track.reserves.iter().map(|&(_, bytes)| i128::from(bytes)).sum::<i128>();
        self.track.reserved_before = u64::try_from(reserved.max(0)).unwrap_or(u64::MAX);
    }
}

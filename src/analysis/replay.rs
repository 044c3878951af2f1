//! Computes lifetimes from entries: follows each address entry by entry, then compares with the
//! segments at the end.

use std::collections::{HashMap, HashSet};
use std::mem;

use crate::lifetimes::{Lifetime, Lifetimes, Moment};
use crate::model::{Action, BlockState, Device, StackId, TextId};

pub(crate) fn replay(device: &Device) -> Lifetimes {
    let mut replay = Replay::new(device);
    for (index, entry) in (0..).zip(&device.entries) {
        match entry.action {
            Action::Alloc => replay.allocated(index),
            Action::Free => replay.freed(index, true),
            Action::FreeRequested => replay.freed(index, false),
            Action::FreeCompleted => replay.completed(index),
            _ => {}
        }
    }
    replay.finish()
}

struct Replay<'a> {
    device: &'a Device,
    /// Lifetimes that begin in the history, in this order.
    born: Vec<Lifetime>,
    /// Lifetimes that began before the history.
    found: Vec<Lifetime>,
    /// Current block at each address, or since when the address is free.
    now: HashMap<u64, LiveState>,
    disagreements_count: u64,
}

#[derive(Clone, Copy)]
enum LiveState {
    /// Index in `born`.
    Born(u32),
    /// Index in `found`.
    Found(u32),
    Nothing {
        since: Moment,
    },
}

impl<'a> Replay<'a> {
    fn new(device: &'a Device) -> Replay<'a> {
        let (born, found, now) = Default::default();
        Replay { device, born, found, now, disagreements_count: 0 }
    }

    fn never(&self) -> Moment {
        self.device.entries.len() as Moment + 1
    }

    fn life(&mut self, now: LiveState) -> Option<&mut Lifetime> {
        match now {
            LiveState::Born(index) => Some(&mut self.born[index as usize]),
            LiveState::Found(index) => Some(&mut self.found[index as usize]),
            LiveState::Nothing { .. } => None,
        }
    }

    fn at(&self, address: u64) -> LiveState {
        self.now.get(&address).copied().unwrap_or(LiveState::Nothing { since: 0 })
    }

    fn allocated(&mut self, index: u32) {
        let entry = self.device.entries.at(index as usize);
        let before = self.now.insert(entry.address, LiveState::Born(self.born.len() as u32));
        if let Some(before) = before.and_then(|before| self.life(before)) {
            // The free of this block is not in the history.
            before.end = before.end.min(index + 1);
            before.reusable = index + 1;
            self.disagreements_count += 1;
        }
        let never = self.never();
        self.born.push(Lifetime {
            address: entry.address,
            bytes: entry.bytes,
            stream: entry.stream,
            stack: entry.stack,
            category: entry.category,
            begin: index + 1,
            end: never,
            reusable: never,
            begin_known: true,
            end_known: false,
        });
    }

    fn freed(&mut self, index: u32, reusable: bool) {
        let never = self.never();
        let now = if reusable { self.gone(index) } else { self.here(index) };
        let life = self.life(now).expect("there is one now");
        if life.end == never {
            life.end = index + 1;
            life.end_known = true;
        }
        if reusable {
            life.reusable = index + 1;
        }
    }

    fn completed(&mut self, index: u32) {
        let never = self.never();
        let now = self.gone(index);
        let life = self.life(now).expect("there is one now");
        if life.end == never {
            // The request of this free is not in the history, so the program has not held the block
            // in it.
            life.end = life.begin;
        }
        life.reusable = index + 1;
    }

    /// Returns the block at the address of an entry that frees it.
    fn here(&mut self, index: u32) -> LiveState {
        let address = self.device.entries.at(index as usize).address;
        match self.at(address) {
            LiveState::Nothing { since } => {
                let now = self.found(index, since);
                self.now.insert(address, now);
                now
            }
            now => now,
        }
    }

    /// Returns the block at the address and marks the address as free.
    fn gone(&mut self, index: u32) -> LiveState {
        let address = self.device.entries.at(index as usize).address;
        let nothing = LiveState::Nothing { since: index + 1 };
        match self.now.insert(address, nothing).unwrap_or(LiveState::Nothing { since: 0 }) {
            LiveState::Nothing { since } => self.found(index, since),
            now => now,
        }
    }

    /// Adds a block that an entry frees although the history has no allocation: it existed before.
    fn found(&mut self, index: u32, since: Moment) -> LiveState {
        let entry = self.device.entries.at(index as usize);
        self.found.push(Lifetime {
            address: entry.address,
            bytes: entry.bytes,
            stream: entry.stream,
            stack: StackId::NONE,
            category: TextId::EMPTY,
            begin: since,
            end: self.never(),
            reusable: self.never(),
            begin_known: false,
            end_known: false,
        });
        LiveState::Found(self.found.len() as u32 - 1)
    }

    fn finish(mut self) -> Lifetimes {
        self.agree_with_segments();
        self.found.sort_by_key(|life| (life.begin, life.address));
        let mut all = self.found;
        all.append(&mut self.born);
        let mut lifetimes = Lifetimes {
            all,
            last: self.device.entries.len() as Moment,
            disagreements_count: self.disagreements_count,
            ..Lifetimes::default()
        };
        lifetimes.find_peak_and_end();
        lifetimes
    }

    /// Adapts the end to the segments.
    fn agree_with_segments(&mut self) {
        let (last, never) = (self.device.entries.len() as Moment, self.never());
        let mut confirmed = HashSet::new();
        for segment in &self.device.segments {
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Free) {
                let pending = block.state == BlockState::Pending;
                let now = self.at(block.address);
                let agrees = |life: &mut Lifetime| {
                    life.bytes == block.requested_bytes && (life.end < never) == pending
                };
                if self.life(now).is_some_and(agrees) {
                    confirmed.insert(block.address);
                    continue;
                }
                let begin = if let LiveState::Nothing { since } = now { since } else { last };
                self.disagreements_count += u64::from(begin > 0);
                self.found.push(Lifetime {
                    address: block.address,
                    bytes: block.requested_bytes,
                    stream: segment.stream,
                    stack: block.stack,
                    category: block.category,
                    begin,
                    end: if pending { begin } else { never },
                    reusable: never,
                    begin_known: false,
                    end_known: false,
                });
            }
        }
        for (address, now) in mem::take(&mut self.now) {
            if confirmed.contains(&address) {
                continue;
            }
            if let Some(life) = self.life(now) {
                life.end = life.end.min(last);
                life.reusable = last;
                self.disagreements_count += 1;
            }
        }
    }
}

//! The last accesses of every byte, and the races that follow from them.
//!
//! An interval map: intervals are split where an access begins or ends, so two accesses of the same
//! bytes meet in the same intervals. Every interval holds its last write and the reads since, each
//! with its epoch. An access that does not know one of them is a race.

use std::collections::BTreeMap;

use super::clock::{Clock, Epoch};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    Read,
    Write,
    /// An access to a flag: spinning on a word while another operation sets it is no race.
    AtomicRead,
    AtomicWrite,
}

#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub start: u64,
    pub bytes: u64,
    pub kind: AccessKind,
}

/// Origin of an access, for the report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    pub name: &'static str,
    pub op: u64,
    pub stream: u64,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.stream {
            HOST_STREAM => write!(f, "{}", self.name),
            stream => write!(f, "{}#{} on stream {stream}", self.name, self.op),
        }
    }
}

/// Stream number of accesses made by the host.
pub const HOST_STREAM: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Mark {
    epoch: Epoch,
    source: Source,
    atomic: bool,
}

#[derive(Clone, Default)]
struct Interval {
    end: u64,
    write: Option<Mark>,
    reads: Vec<Mark>,
}

/// Two unordered accesses of the same bytes, of which one writes.
pub struct Race {
    pub first: Source,
    pub second: Source,
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, Default)]
pub struct Shadow {
    intervals: BTreeMap<u64, Interval>,
}

impl Shadow {
    /// Records one access made by `epoch`, which knows `clock`, and returns the races with it.
    pub fn access(
        &mut self,
        access: Access,
        source: Source,
        epoch: Epoch,
        clock: &Clock,
    ) -> Vec<Race> {
        let Access { start, bytes, kind } = access;
        if bytes == 0 {
            return Vec::new();
        }
        let end = start + bytes;
        self.split(start);
        self.split(end);
        let atomic = matches!(kind, AccessKind::AtomicRead | AccessKind::AtomicWrite);
        let mark = Mark { epoch, source, atomic };
        let mut races = Vec::new();
        match kind {
            AccessKind::Read | AccessKind::AtomicRead => {
                self.fill_gaps(start, end);
                for (from, interval) in self.intervals.range_mut(start..end) {
                    check(&mut races, interval.write.as_ref(), &mark, clock, *from, interval.end);
                    // A read that this one knows cannot be the only evidence of a race any more.
                    interval.reads.retain(|read| !clock.covers(read.epoch));
                    interval.reads.push(mark);
                }
            }
            AccessKind::Write | AccessKind::AtomicWrite => {
                let mut old = Vec::new();
                for (from, interval) in self.intervals.range(start..end) {
                    old.push(*from);
                    let earlier = interval.write.iter().chain(&interval.reads);
                    for seen in earlier {
                        check(&mut races, Some(seen), &mark, clock, *from, interval.end);
                    }
                }
                for from in old {
                    self.intervals.remove(&from);
                }
                let interval = Interval { end, write: Some(mark), reads: Vec::new() };
                self.intervals.insert(start, interval);
            }
        }
        races
    }

    /// Forgets a range whose memory was released: its next owner starts afresh.
    pub fn clear(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        let old: Vec<u64> = self.intervals.range(start..end).map(|(from, _)| *from).collect();
        for from in old {
            self.intervals.remove(&from);
        }
    }

    fn split(&mut self, at: u64) {
        let Some((_, interval)) = self.intervals.range_mut(..at).next_back() else { return };
        if interval.end > at {
            let right = interval.clone();
            interval.end = at;
            self.intervals.insert(at, right);
        }
    }

    fn fill_gaps(&mut self, start: u64, end: u64) {
        let mut gaps = Vec::new();
        let mut next = start;
        for (from, interval) in self.intervals.range(start..end) {
            if *from > next {
                gaps.push((next, *from));
            }
            next = interval.end;
        }
        if next < end {
            gaps.push((next, end));
        }
        for (from, end) in gaps {
            self.intervals.insert(from, Interval { end, ..Interval::default() });
        }
    }
}

fn check(
    races: &mut Vec<Race>,
    seen: Option<&Mark>,
    now: &Mark,
    clock: &Clock,
    start: u64,
    end: u64,
) {
    let Some(seen) = seen else { return };
    let both_atomic = seen.atomic && now.atomic;
    if both_atomic || clock.covers(seen.epoch) {
        return;
    }
    // Adjacent intervals with the same pair are merged into one line.
    if let Some(last) = races.last_mut()
        && last.first == seen.source
        && last.end == start
    {
        last.end = end;
        return;
    }
    races.push(Race { first: seen.source, second: now.source, start, end });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::races::clock::{ChainSet, Chains};

    const A: Source = Source { name: "a", op: 1, stream: 1 };
    const B: Source = Source { name: "b", op: 2, stream: 2 };

    fn access(start: u64, bytes: u64, kind: AccessKind) -> Access {
        Access { start, bytes, kind }
    }

    #[test]
    fn unordered_writes_race_only_where_they_overlap() {
        let (mut chains, mut shadow) = (Chains::default(), Shadow::default());
        let (mut one, mut two) = (Clock::default(), Clock::default());
        let first = chains.advance(&ChainSet::default(), &mut one);
        let second = chains.advance(&ChainSet::default(), &mut two);
        assert!(shadow.access(access(0, 100, AccessKind::Write), A, first, &one).is_empty());
        let races = shadow.access(access(50, 100, AccessKind::Write), B, second, &two);
        assert_eq!(races.len(), 1);
        assert_eq!((races[0].start, races[0].end), (50, 100));
    }

    #[test]
    fn reads_do_not_race_with_each_other_but_with_an_unordered_write() {
        let (mut chains, mut shadow) = (Chains::default(), Shadow::default());
        let (mut one, mut two) = (Clock::default(), Clock::default());
        let first = chains.advance(&ChainSet::default(), &mut one);
        let second = chains.advance(&ChainSet::default(), &mut two);
        assert!(shadow.access(access(0, 8, AccessKind::Read), A, first, &one).is_empty());
        assert!(shadow.access(access(0, 8, AccessKind::Read), B, second, &two).is_empty());
        let third = chains.advance(&ChainSet::default(), &mut two);
        assert_eq!(shadow.access(access(0, 8, AccessKind::Write), B, third, &two).len(), 1);
    }

    #[test]
    fn flags_do_not_race_with_flags() {
        let (mut chains, mut shadow) = (Chains::default(), Shadow::default());
        let (mut one, mut two) = (Clock::default(), Clock::default());
        let first = chains.advance(&ChainSet::default(), &mut one);
        let second = chains.advance(&ChainSet::default(), &mut two);
        assert!(shadow.access(access(0, 8, AccessKind::AtomicWrite), A, first, &one).is_empty());
        assert!(shadow.access(access(0, 8, AccessKind::AtomicRead), B, second, &two).is_empty());
    }
}

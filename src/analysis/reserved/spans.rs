//! All segments of the history, each for the time in which its extent did not change. They are
//! computed backwards from the end: an entry that reserves a segment removes it, and one that
//! releases it adds it.

use std::collections::BTreeMap;

use crate::lifetimes::Moment;
use crate::model::{Action, Device, Entry, Segment};

/// A segment without its blocks, in the moments `from..until`.
pub(super) struct Span {
    pub segment: Segment,
    pub from: Moment,
    pub until: Moment,
}

pub(super) fn of(device: &Device) -> Vec<Span> {
    let mut back = Back::default();
    for segment in &device.segments {
        let segment = Segment { blocks: Vec::new(), ..*segment };
        let of_kind = if segment.expandable { &mut back.parts } else { &mut back.wholes };
        of_kind.insert(segment.address, (segment, Moment::MAX));
    }
    for (index, entry) in device.entries.iter().enumerate().rev() {
        let moment = index as Moment + 1;
        match entry.action {
            Action::SegmentAlloc => back.came(entry.address, moment),
            Action::SegmentFree => {
                back.came(entry.address, moment);
                back.wholes.insert(entry.address, (segment_of(&entry), moment));
            }
            Action::SegmentMap => back.part_came(&segment_of(&entry), moment),
            Action::SegmentUnmap => back.part_went(segment_of(&entry), moment),
            _ => {}
        }
    }
    for (segment, until) in back.wholes.into_values().chain(back.parts.into_values()) {
        back.spans.push(Span { segment, from: 0, until });
    }
    back.spans
}

fn segment_of(entry: &Entry) -> Segment {
    Segment {
        address: entry.address,
        bytes: entry.bytes,
        stream: entry.stream,
        small: false,
        pool: entry.pool,
        expandable: matches!(entry.action, Action::SegmentMap | Action::SegmentUnmap),
        stack: entry.stack,
        blocks: Vec::new(),
    }
}

/// The segments before the entries visited so far, with the end of their spans.
#[derive(Default)]
struct Back {
    wholes: BTreeMap<u64, (Segment, Moment)>,
    /// Ranges that grow and shrink in parts.
    parts: BTreeMap<u64, (Segment, Moment)>,
    spans: Vec<Span>,
}

impl Back {
    fn began(&mut self, (segment, until): (Segment, Moment), from: Moment) {
        self.spans.push(Span { segment, from, until });
    }

    fn came(&mut self, address: u64, moment: Moment) {
        if let Some(whole) = self.wholes.remove(&address) {
            self.began(whole, moment);
        }
    }

    /// Shrinks the range to what it was before this part was mapped.
    fn part_came(&mut self, part: &Segment, moment: Moment) {
        while let Some((&at, (range, _))) = self.parts.range(..part.end()).next_back()
            && range.end() > part.address
        {
            let Some((range, until)) = self.parts.remove(&at) else { break };
            for (from, to) in [(at, part.address), (part.end(), range.end())] {
                if from < to {
                    let rest = Segment { address: from, bytes: to - from, ..range.clone() };
                    self.parts.insert(from, (rest, moment));
                }
            }
            self.began((range, until), moment);
        }
    }

    /// Adds this part again: before it was unmapped, it was joined to adjacent parts of its stream.
    fn part_went(&mut self, part: Segment, moment: Moment) {
        let up_to_it = self.parts.range(..=part.end()).rev();
        let touching = up_to_it.take_while(|(_, (range, _))| range.end() >= part.address);
        let of_stream = touching.filter(|(_, (range, _))| range.stream == part.stream);
        let beside: Vec<u64> = of_stream.map(|(&at, _)| at).collect();
        let mut joined = part;
        for at in beside {
            let Some((range, until)) = self.parts.remove(&at) else { continue };
            let (from, to) = (joined.address.min(at), joined.end().max(range.end()));
            joined = Segment { address: from, bytes: to - from, ..range.clone() };
            self.began((range, until), moment);
        }
        self.parts.insert(joined.address, (joined, moment));
    }
}

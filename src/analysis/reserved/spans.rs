//! All segments that ever were, each as long as it was as it is. They follow from the end: going
//! back through the entries, segments that came are gone, and those that went are there.

use std::collections::BTreeMap;

use crate::lifetimes::Moment;
use crate::model::{Action, Device, Entry, Segment};

/// A segment, without its blocks, in the moments from `from` to before `until`.
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
                back.wholes.insert(entry.address, (segment_of(entry), moment));
            }
            Action::SegmentMap => back.part_came(&segment_of(entry), moment),
            Action::SegmentUnmap => back.part_went(segment_of(entry), moment),
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

/// What is there before the entries that were gone back through, and until when.
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

    /// What is left of ranges before this part of them came.
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

    /// The ranges before this part went: it joined those beside it, of its stream.
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

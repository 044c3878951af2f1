//! Events that freed blocks wait for, in lines: within a line, each event is complete before the
//! next. So querying the first event shows whether any is complete, and a few more queries show how
//! many are. A program may have tens of thousands.
//!
//! There are at most as many events as a context may have at once (`state/events.rs`), and no
//! line is empty.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};

use cachealloc_core::order::{BarrierNumber, CounterReading};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{ReuseCondition, TagEpoch};

use crate::driver::api;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::events::EventRef;

/// Work that an event was recorded after.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The work of a stream.
    Stream { context_id: u64, stream_id: u64 },
    /// All work of the context.
    Context,
}

/// Place of an event among the others.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    line: Option<Line>,
    /// Position in the line: the event is ordered after those with a lower number.
    number: u64,
    /// Submissions before the record, if other frees may share the event.
    seen: Option<CounterReading>,
}

/// An event that tags refer to.
#[derive(Clone)]
pub(crate) struct Listed {
    pub event: EventRef,
    /// How blocks wait for it.
    pub ready: ReuseCondition,
    /// Epochs between which the tags were made.
    pub made: Range<TagEpoch>,
    place: Place,
    /// Number of events listed before this one.
    at: u64,
}

/// The lines of one context.
#[derive(Default)]
pub(crate) struct Lines {
    lines: BTreeMap<Line, VecDeque<Listed>>,
    /// Events of no line, by their number.
    alone: BTreeMap<u64, Listed>,
    count: usize,
    next_at: u64,
}

impl Place {
    /// The place of an event that was recorded on a stream: its line has the order of the records. A
    /// driver without stream ids may reuse the handle for a stream that is not ordered after it.
    pub(crate) fn on(stream_id: u64, owner: &Context) -> Place {
        let line = match rule_holds(Rule::EventsInOrderByStream) {
            true => Line::Stream { context_id: owner.id, stream_id },
            false => Line::Context,
        };
        Place { line: api::has_stream_ids().then_some(line), number: 0, seen: None }
    }

    /// Marks the event, which is about to be recorded, as one that further frees may share.
    pub(crate) fn shared(self) -> Place {
        Place { seen: Some(LEDGER.submitted.before_barrier()), ..self }
    }

    /// Returns how many calls had begun by then, if all of them had ended.
    pub(crate) fn covered(&self) -> Option<u64> {
        self.seen?.covers()
    }

    /// Place of an event that was recorded after all work of the context.
    pub(crate) fn behind_all(number: BarrierNumber) -> Place {
        Place { line: Some(Line::Context), number: number.0, seen: None }
    }

    /// Place of any other event.
    pub(crate) fn alone() -> Place {
        Place { line: None, number: 0, seen: None }
    }
}

impl Lines {
    pub(crate) fn push(
        &mut self,
        place: Place,
        event: EventRef,
        ready: ReuseCondition,
        made: Range<TagEpoch>,
    ) {
        let listed = Listed { event, ready, made, place, at: self.next_at };
        self.next_at += 1;
        self.count += 1;
        let Some(line) = place.line else { return self.push_alone(listed) };
        let line = match self.lines.get_mut(&line) {
            Some(known) => known,
            None => self.lines.entry(line).or_default(),
        };
        if let Some(last) = line.back_mut()
            && last.event.id() == listed.event.id()
            && last.ready == listed.ready
        {
            last.made.end = listed.made.end;
            self.count -= 1;
            return;
        }
        // Another thread, which recorded its event later, may have listed it first.
        match line.back().is_none_or(|last| last.place.number <= place.number) {
            true => line.push_back(listed),
            false => self.push_alone(Listed { place: Place::alone(), ..listed }),
        }
    }

    fn push_alone(&mut self, listed: Listed) {
        self.alone.insert(listed.at, listed);
    }

    /// Returns the last event of this line, if everything submitted so far preceded its record: an
    /// event recorded now would be complete at the same time.
    pub(crate) fn covers_all(&self, place: Place) -> Option<EventRef> {
        let last = self.lines.get(&place.line?)?.back()?;
        let quiet = LEDGER.submitted.nothing_since(last.place.seen?);
        (quiet || !rule_holds(Rule::SharedEventNeedsQuiet)).then(|| last.event.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first event of each line, and those of no line.
    pub(crate) fn firsts(&self) -> Vec<Listed> {
        let firsts = self.lines.values().filter_map(VecDeque::front);
        firsts.chain(self.alone.values()).cloned().collect()
    }

    /// Returns the last event of each line, and those of no line. Once these are complete, all the
    /// others are.
    pub(crate) fn lasts(&self) -> Vec<EventRef> {
        let lasts = self.lines.values().filter_map(VecDeque::back);
        lasts.chain(self.alone.values()).map(|listed| listed.event.clone()).collect()
    }

    /// Returns how many events follow this one in its line.
    pub(crate) fn behind_count(&self, first: &Listed) -> u64 {
        self.behind(first).map_or(0, |(line, place)| (line.len() - place) as u64)
    }

    /// Returns the event with this number, from 0, among those that follow `first`. Returns `None`
    /// if others have left the line meanwhile.
    pub(crate) fn behind_by(&self, first: &Listed, number: u64) -> Option<Listed> {
        let (line, place) = self.behind(first)?;
        line.get(place + usize::try_from(number).ok()?).cloned()
    }

    fn behind(&self, first: &Listed) -> Option<(&VecDeque<Listed>, usize)> {
        let line = self.lines.get(&first.place.line?)?;
        Some((line, line.partition_point(|listed| listed.at <= first.at)))
    }

    /// Takes out these completed events, and all before them in their lines.
    pub(crate) fn take(&mut self, over: &[Listed]) -> Vec<Listed> {
        let mut taken = Vec::new();
        for last in over {
            if let Some(alone) = self.alone.remove(&last.at) {
                taken.push(alone);
                continue;
            }
            let Some(line) = last.place.line else { continue };
            let Some(in_order) = self.lines.get_mut(&line) else { continue };
            let count = in_order.partition_point(|listed| listed.at <= last.at);
            taken.extend(in_order.drain(..count));
            if in_order.is_empty() {
                self.lines.remove(&line);
            }
        }
        self.count -= taken.len();
        taken
    }

    /// Keeps only the events for which `stays` returns `true`.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&Listed) -> bool) {
        self.alone.retain(|_, listed| stays(listed));
        self.lines.retain(|_, line| {
            line.retain(&mut stays);
            !line.is_empty()
        });
        self.count = self.alone.len() + self.lines.values().map(VecDeque::len).sum::<usize>();
    }
}

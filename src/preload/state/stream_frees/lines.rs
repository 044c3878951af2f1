//! The events that freed blocks wait for, in lines: of the events of one line each is over before the next. So whether any
//! is over is asked of the first, and how many are with few questions more: a program may have tens of thousands.
//!
//! As many events as a context may have at once (`state/events.rs`), and no line without one.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};

use cachealloc_core::order::{BarrierNumber, CounterReading};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{ReuseCondition, TagEpoch};

use crate::driver::api;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::events::EventRef;

/// What an event was recorded behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The work of a stream.
    Stream { context_id: u64, stream_id: u64 },
    /// All work of the context.
    Context,
}

/// Where an event belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    line: Option<Line>,
    /// It stands behind those with a lower number.
    number: u64,
    /// What was submitted before the record, where other frees may share the event.
    seen: Option<CounterReading>,
}

/// An event that tags were made of.
#[derive(Clone)]
pub(crate) struct Listed {
    pub event: EventRef,
    /// How blocks wait for it.
    pub ready: ReuseCondition,
    /// When the tags were made.
    pub made: Range<TagEpoch>,
    place: Place,
    /// Counts all that were ever listed.
    at: u64,
}

/// The lines of one context.
#[derive(Default)]
pub(crate) struct Lines {
    lines: BTreeMap<Line, VecDeque<Listed>>,
    /// Of no line, by their number.
    alone: BTreeMap<u64, Listed>,
    count: usize,
    next_at: u64,
}

impl Place {
    /// Of an event that was recorded on a stream, listed in the order of the records. A driver without ids may give the
    /// next stream the handle of this one, which does not come behind it.
    pub(crate) fn on(stream_id: u64, owner: &Context) -> Place {
        let line = match rule_holds(Rule::EventsInOrderByStream) {
            true => Line::Stream { context_id: owner.id, stream_id },
            false => Line::Context,
        };
        Place { line: api::has_stream_ids().then_some(line), number: 0, seen: None }
    }

    /// It is about to be recorded, and further frees may share it.
    pub(crate) fn shared(self) -> Place {
        Place { seen: Some(LEDGER.submitted.before_barrier()), ..self }
    }

    /// How many calls had begun by then, if all of them had ended.
    pub(crate) fn covered(&self) -> Option<u64> {
        self.seen?.covers()
    }

    /// Of one that was recorded behind all work of the context.
    pub(crate) fn behind_all(number: BarrierNumber) -> Place {
        Place { line: Some(Line::Context), number: number.0, seen: None }
    }

    /// Of any other.
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
        // Another thread, which recorded its event later, may have been here before.
        match line.back().is_none_or(|last| last.place.number <= place.number) {
            true => line.push_back(listed),
            false => self.push_alone(Listed { place: Place::alone(), ..listed }),
        }
    }

    fn push_alone(&mut self, listed: Listed) {
        self.alone.insert(listed.at, listed);
    }

    /// The last event of this line, if all that was submitted before now was before its record: one that is recorded now
    /// would be complete with it.
    pub(crate) fn covers_all(&self, place: Place) -> Option<EventRef> {
        let last = self.lines.get(&place.line?)?.back()?;
        let quiet = LEDGER.submitted.nothing_since(last.place.seen?);
        (quiet || !rule_holds(Rule::SharedEventNeedsQuiet)).then(|| last.event.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The first of each line, and those of no line.
    pub(crate) fn firsts(&self) -> Vec<Listed> {
        let firsts = self.lines.values().filter_map(VecDeque::front);
        firsts.chain(self.alone.values()).cloned().collect()
    }

    /// Behind these all the others are over.
    pub(crate) fn lasts(&self) -> Vec<EventRef> {
        let lasts = self.lines.values().filter_map(VecDeque::back);
        lasts.chain(self.alone.values()).map(|listed| listed.event.clone()).collect()
    }

    /// How many there are in its line behind this one.
    pub(crate) fn behind_count(&self, first: &Listed) -> u64 {
        self.behind(first).map_or(0, |(line, place)| (line.len() - place) as u64)
    }

    /// The one of those with this number, from 0. None: others have left the line meanwhile.
    pub(crate) fn behind_by(&self, first: &Listed, number: u64) -> Option<Listed> {
        let (line, place) = self.behind(first)?;
        line.get(place + usize::try_from(number).ok()?).cloned()
    }

    fn behind(&self, first: &Listed) -> Option<(&VecDeque<Listed>, usize)> {
        let line = self.lines.get(&first.place.line?)?;
        Some((line, line.partition_point(|listed| listed.at <= first.at)))
    }

    /// Takes out what is over: these, and all before them in their lines.
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

    /// Keeps only these.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&Listed) -> bool) {
        self.alone.retain(|_, listed| stays(listed));
        self.lines.retain(|_, line| {
            line.retain(&mut stays);
            !line.is_empty()
        });
        self.count = self.alone.len() + self.lines.values().map(VecDeque::len).sum::<usize>();
    }
}

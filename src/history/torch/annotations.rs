//! PyTorch's external annotations: when the program went through its ranges.
//!
//! A range has no times, but its entries do. A *pass* is from the first entry in a range to the
//! last one before the range is entered again, as in `analysis::passes`. A range in which nothing
//! was recorded is not listed.

use std::collections::{HashMap, VecDeque};

use crate::snapshot::{EntryList, Snapshot};

/// Maximum number of passes of a device; the last ones are kept.
const PASSES_MAX: usize = 1 << 18;
/// Maximum depth of ranges; deeper ones are not followed.
const DEPTH_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Annotations {
    /// Events by device, then by time.
    pub events: Vec<Event>,
    /// Number of passes dropped at the maximum.
    pub dropped_count: u64,
    names: Vec<String>,
}

pub(super) struct Event {
    pub device: u32,
    pub time_ns: u64,
    pub begins: bool,
    name: u32,
}

impl Annotations {
    pub(super) fn of<E: EntryList>(snapshot: &Snapshot<E>) -> Annotations {
        let mut names = Names::default();
        let mut annotations = Annotations::default();
        for (number, device) in (0..).zip(&snapshot.devices) {
            let mut passes = Passes::default();
            for (index, entry) in device.entries.each().enumerate() {
                let text = snapshot.ranges.get(usize::from(entry.range));
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    passes.note(names.of(entry.range, text), index, entry.entered);
                }
            }
            annotations.dropped_count += passes.dropped as u64;
            annotations.events.extend(passes.events(number, &device.entries));
        }
        annotations.names = names.all;
        annotations
    }

    pub(super) fn name(&self, event: &Event) -> &str {
        &self.names[event.name as usize]
    }
}

/// Full names of a range and of the ranges around it: `step` and `step/forward`.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Names of each range, by its number, the outermost first.
    of_ranges: HashMap<u16, Vec<u32>>,
}

impl Names {
    fn of(&mut self, range: u16, text: &str) -> &[u32] {
        let Names { all, numbers, of_ranges } = self;
        of_ranges.entry(range).or_insert_with(|| {
            let ends = text.match_indices('/').map(|(at, _)| at).chain([text.len()]);
            let number = |end: usize| {
                *numbers.entry(text[..end].to_string()).or_insert_with(|| {
                    all.push(text[..end].to_string());
                    all.len() as u32 - 1
                })
            };
            ends.take(DEPTH_MAX).map(number).collect()
        })
    }
}

#[derive(Default)]
struct Passes {
    all: VecDeque<Pass>,
    dropped: usize,
    /// The last pass of each name, counted including the dropped ones.
    last: HashMap<u32, usize>,
}

struct Pass {
    name: u32,
    depth: u8,
    /// Indices of the first and last entry.
    first: u32,
    last: u32,
}

impl Passes {
    /// Adds an entry in these ranges; for `entered`, see [`Entry::entered`].
    fn note(&mut self, names: &[u32], index: usize, entered: u8) {
        for (depth, &name) in names.iter().enumerate() {
            let is_new = entered > 0 && depth + 1 >= usize::from(entered);
            let last = self.last.get(&name).filter(|_| !is_new);
            let last = last.and_then(|last| self.all.get_mut(last.checked_sub(self.dropped)?));
            if let Some(pass) = last {
                pass.last = index as u32;
                continue;
            }
            if self.all.len() == PASSES_MAX {
                self.all.pop_front();
                self.dropped += 1;
            }
            self.last.insert(name, self.dropped + self.all.len());
            let (depth, first) = (depth as u8, index as u32);
            self.all.push_back(Pass { name, depth, first, last: first });
        }
    }

    fn events(self, device: u32, entries: &impl EntryList) -> Vec<Event> {
        let both = |Pass { name, depth, first, last }: Pass| {
            // At one entry all ranges begin before any ends, and inner ranges end first.
            [((first, false, depth), name), ((last, true, u8::MAX - depth), name)]
        };
        let mut all: Vec<_> = self.all.into_iter().flat_map(both).collect();
        all.sort_unstable();
        let mut times = (0..).zip(entries.each().map(|entry| entry.time_ns)).peekable();
        let event = |((index, ends, _), name): ((u32, bool, u8), u32)| {
            while times.next_if(|(number, _)| *number < index).is_some() {}
            let (_, time_ns) = *times.peek()?;
            Some(Event { device, time_ns, begins: !ends, name })
        };
        all.into_iter().filter_map(event).collect()
    }
}

//! The passes of the program through its ranges.
//!
//! An entry has the ranges that it is in (`step/forward` is in `step` and in `step/forward`), and
//! which of them were entered since the previous entry. A *pass* lasts from the first entry of a
//! range to its last before the range is entered again. Files without this information (of PyTorch,
//! or of an older library) have a pass for each run of entries.

use std::collections::HashMap;

use crate::lifetimes::Moment;
use crate::model::{Action, Device, TextId, Texts};

/// Depth up to which nested ranges are followed.
pub const PASS_DEPTH_MAX: usize = 4;

/// All passes on a device.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    /// Passes by the moment at which they begin, outer ones before those inside.
    pub all: Vec<Pass>,
    /// Whole names of the ranges, in the order of their first pass.
    pub ranges: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Index in [`Passes::ranges`].
    pub range: u32,
    /// Number of enclosing ranges.
    pub depth: u8,
    /// The moment before its first entry.
    pub begin: Moment,
    /// The moment after its last entry.
    pub end: Moment,
}

impl Passes {
    pub fn of(device: &Device, texts: &Texts) -> Passes {
        let says_entered = device.entries.iter().any(|entry| entry.entered > 0);
        let mut found = Found::default();
        let mut before = Vec::new();
        for (index, entry) in (0..).zip(&device.entries) {
            // The text of an annotation is a message, not a range.
            if matches!(entry.action, Action::Annotate | Action::Snapshot) {
                continue;
            }
            let ranges = found.ranges_of(entry.user_metadata, texts);
            for (depth, &range) in ranges.iter().enumerate() {
                let is_new = match says_entered {
                    true => entry.entered > 0 && depth + 1 >= usize::from(entry.entered),
                    false => before.get(depth) != Some(&range),
                };
                found.note(range, depth, index, is_new);
            }
            before = ranges;
        }
        Passes { all: found.all, ranges: found.ranges }
    }
}

#[derive(Default)]
struct Found {
    all: Vec<Pass>,
    ranges: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Ranges of each text, outermost first.
    known: HashMap<TextId, Vec<u32>>,
    /// Index of the last pass of each range.
    last: Vec<Option<usize>>,
}

impl Found {
    fn ranges_of(&mut self, text: TextId, texts: &Texts) -> Vec<u32> {
        if let Some(known) = self.known.get(&text) {
            return known.clone();
        }
        let whole = texts.get(text);
        let ends = whole.match_indices('/').map(|(at, _)| at).chain([whole.len()]);
        let ends = ends.filter(|_| !text.is_empty()).take(PASS_DEPTH_MAX);
        let ranges: Vec<u32> = ends.map(|end| self.number(&whole[..end])).collect();
        self.known.insert(text, ranges.clone());
        ranges
    }

    fn number(&mut self, range: &str) -> u32 {
        if let Some(&number) = self.numbers.get(range) {
            return number;
        }
        let number = self.ranges.len() as u32;
        self.ranges.push(range.to_string());
        self.last.push(None);
        self.numbers.insert(range.to_string(), number);
        number
    }

    fn note(&mut self, range: u32, depth: usize, begin: Moment, is_new: bool) {
        let last = &mut self.last[range as usize];
        match last.filter(|_| !is_new) {
            Some(pass) => self.all[pass].end = begin + 1,
            None => {
                *last = Some(self.all.len());
                self.all.push(Pass { range, depth: depth as u8, begin, end: begin + 1 });
            }
        }
    }
}

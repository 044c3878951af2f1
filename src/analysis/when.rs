//! Moments that a user can specify.

use crate::lifetimes::{Lifetimes, Moment};
use crate::model::{Action, Device};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// After the last entry, as in the segments of the file.
    End,
    /// When the program held most, for each device separately.
    Peak,
    /// The moment before the last request that failed for lack of memory.
    Shortage,
    /// The moment after this number of entries.
    Entry(u64),
    /// This many microseconds after the first entry.
    AfterUs(u64),
}

/// Syntax that [`When::parse`] accepts.
pub const WHEN_ALLOWED: &str =
    "end, peak, oom, a time since the first entry such as 2.5s or 300ms, or an entry such as #1200";

impl When {
    pub fn parse(text: &str) -> Option<When> {
        match text {
            "end" => return Some(When::End),
            "peak" => return Some(When::Peak),
            "oom" => return Some(When::Shortage),
            _ => {}
        }
        if let Some(number) = text.strip_prefix('#') {
            return number.parse().ok().map(When::Entry);
        }
        let (number, unit_us) = match text {
            _ if text.ends_with("us") => (&text[..text.len() - 2], 1.0),
            _ if text.ends_with("ms") => (&text[..text.len() - 2], 1e3),
            _ if text.ends_with('s') => (&text[..text.len() - 1], 1e6),
            _ => (text, 1e6),
        };
        let number: f64 = number.parse().ok()?;
        let us = number * unit_us;
        (us.is_finite() && us >= 0.0).then_some(When::AfterUs(us.round() as u64))
    }

    /// Returns `None` if the device has no such moment because no request failed there.
    pub fn resolve(self, device: &Device, lifetimes: &Lifetimes) -> Option<Moment> {
        match self {
            When::End => Some(lifetimes.last),
            When::Peak => Some(lifetimes.peak),
            When::Shortage => {
                let is_shortage = |entry: crate::model::Entry| entry.action == Action::OutOfMemory;
                device.entries.iter().rposition(is_shortage).map(|index| index as Moment)
            }
            When::Entry(count) => Some(
                Moment::try_from(count).map_or(lifetimes.last, |count| count.min(lifetimes.last)),
            ),
            When::AfterUs(us) => {
                let first = device.entries.first().map_or(0, |entry| entry.time_us);
                let until = first.saturating_add(us);
                let happened = device.entries.partition_point(|entry| entry.time_us <= until);
                Some(happened as Moment)
            }
        }
    }
}

//! Memory that may be held for nothing, under the names of DrGPUM, as far as allocations and frees
//! tell.
//!
//! They do not tell which memory is read and written. So a [leak](Pattern::Leak) and a [temporary
//! allocation](Pattern::Temporary) are facts, and [early allocation](Pattern::Early) and [late
//! deallocation](Pattern::Late) are where to look: the block was held at the peak, and came or went
//! with many others, which is how one writes a program that allocates before it needs and frees
//! after it needed. The rest of DrGPUM's patterns, as dead writes, cannot be known from a snapshot.

use crate::lifetimes::{Lifetime, Lifetimes, Moment};
use crate::model::{Action, Device};
use crate::temporary;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// Held when the history ends. A leak if that is the end of the program.
    Leak,
    /// Freed before anything else happened: see [`temporary`](crate::temporary()).
    Temporary,
    /// Held at the peak, and there since before the first free: allocated with all that a program
    /// sets up. Could be allocated later, if it is first used after the peak.
    Early,
    /// Held at the peak, and freed after the last allocation, with all that a program takes down.
    /// Could be freed earlier, if it is last used before the peak.
    Late,
}

impl Pattern {
    pub const ALL: [Pattern; 4] =
        [Pattern::Leak, Pattern::Temporary, Pattern::Early, Pattern::Late];

    pub fn name(self) -> &'static str {
        match self {
            Pattern::Leak => "memory leak",
            Pattern::Temporary => "temporary allocation",
            Pattern::Early => "early allocation",
            Pattern::Late => "late deallocation",
        }
    }
}

/// Finds the patterns of the lifetimes of a device.
pub struct Waste {
    temporary: Vec<bool>,
    /// The first free, and the last allocation, as moments after them.
    first_free: Moment,
    last_alloc: Moment,
    peak: Moment,
    last: Moment,
}

impl Waste {
    pub fn of(device: &Device, lifetimes: &Lifetimes) -> Waste {
        let is_free = |action| matches!(action, Action::Free | Action::FreeRequested);
        let first_free = device.entries.iter().position(|entry| is_free(entry.action));
        let last_alloc = device.entries.iter().rposition(|entry| entry.action == Action::Alloc);
        let after = |index: usize| index as Moment + 1;
        Waste {
            temporary: temporary::flags(device, lifetimes).collect(),
            first_free: first_free.map_or(Moment::MAX, after),
            last_alloc: last_alloc.map_or(0, after),
            peak: lifetimes.peak,
            last: lifetimes.last,
        }
    }

    /// Whether the lifetime `lifetimes.all[index]`, which is `life`, shows the pattern.
    pub fn shows(&self, pattern: Pattern, index: usize, life: &Lifetime) -> bool {
        match pattern {
            Pattern::Leak => life.is_live_at(self.last),
            Pattern::Temporary => self.temporary[index],
            Pattern::Early => {
                life.is_live_at(self.peak)
                    && life.begin_known
                    && life.begin < self.first_free
                    && life.begin < self.peak
            }
            Pattern::Late => {
                life.is_live_at(self.peak) && life.end_known && life.end > self.last_alloc
            }
        }
    }
}

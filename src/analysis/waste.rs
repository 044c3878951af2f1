//! Memory that may be held needlessly, under the names of DrGPUM, as far as allocations and frees
//! show.
//!
//! They do not show which memory is read and written. So a [leak](Pattern::Leak) and a [temporary
//! allocation](Pattern::Temporary) are facts. An [early allocation](Pattern::Early) or a [late
//! deallocation](Pattern::Late) is a hint: the block was held at the peak, and was allocated or
//! freed together with many others, as in a program that allocates before it needs the memory and
//! frees long after. The rest of DrGPUM's patterns, such as dead writes, cannot be found in a
//! snapshot.

use crate::lifetimes::{Lifetime, Lifetimes, Moment};
use crate::model::{Action, Device};
use crate::temporary;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// Held when the history ends. A leak if the program ends there.
    Leak,
    /// Freed before almost anything else happened: see [`temporary`](crate::temporary()).
    Temporary,
    /// Held at the peak, and allocated before the first free, during the setup of the program.
    /// Could be allocated later if it is first used after the peak.
    Early,
    /// Held at the peak, and freed after the last allocation, during the shutdown of the program.
    /// Could be freed earlier if it is last used before the peak.
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
    /// Moments after the first free and after the last allocation.
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

    /// Returns whether the lifetime `life`, which is `lifetimes.all[index]`, shows the pattern.
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

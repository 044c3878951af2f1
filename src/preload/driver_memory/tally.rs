//! Statistics of the linear memory and the pool memory that the driver serves the program directly.
//! Memory that passes through the cache is counted there. Changed under the lock of the table.

use std::collections::BTreeMap;

use cachealloc_core::{Stat, Stats};
use cachealloc_statistics::breakdown::Component;

use crate::driver_memory::table::Served;

/// Counts by the context with which the memory ends. Pool memory outlives its context and is
/// counted by device and context 0.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<(i32, u64), Counted>);

#[derive(Clone, Copy, Default)]
struct Counted {
    count: Stat,
    bytes: Stat,
}

impl Tally {
    pub(crate) const fn new() -> Tally {
        Tally(BTreeMap::new())
    }

    pub(crate) fn entered(&mut self, served: &Served) {
        if let Some(counted) = self.of(served) {
            increase(&mut counted.count, 1);
            increase(&mut counted.bytes, served.bytes);
        }
    }

    pub(crate) fn ended(&mut self, served: &Served) {
        if let Some(counted) = self.of(served) {
            decrease(&mut counted.count, 1);
            decrease(&mut counted.bytes, served.bytes);
        }
    }

    /// Reverts `ended` after the driver refused the end.
    pub(crate) fn restored(&mut self, served: &Served) {
        if let Some(counted) = self.of(served) {
            for (stat, amount) in [(&mut counted.count, 1), (&mut counted.bytes, served.bytes)] {
                stat.current += amount;
                stat.freed = stat.freed.saturating_sub(amount);
            }
        }
    }

    /// Adds the counts of a context. The first context of a device also gets those that belong to
    /// no context.
    pub(crate) fn add_to(&self, stats: &mut Stats, device: i32, context_id: u64, is_first: bool) {
        let none = is_first.then_some(0);
        for id in [Some(context_id), none].into_iter().flatten() {
            let Some(Counted { count, bytes }) = self.0.get(&(device, id)) else { continue };
            for counts in [&mut stats.allocation, &mut stats.active, &mut stats.segment] {
                add(&mut counts.all, count);
                add(&mut counts.large, count);
            }
            let sums = [
                &mut stats.allocated_bytes,
                &mut stats.active_bytes,
                &mut stats.requested_bytes,
                &mut stats.reserved_bytes,
            ];
            for sum in sums {
                add(&mut sum.all, bytes);
                add(&mut sum.large, bytes);
            }
            stats.num_device_alloc += count.allocated;
            stats.num_device_free += count.freed;
        }
    }

    /// Sets every peak to the current value.
    pub(crate) fn reset_peaks(&mut self, device: i32) {
        self.each(device, |stat| stat.peak = stat.current);
    }

    /// Restarts every total at zero.
    pub(crate) fn reset_totals(&mut self, device: i32) {
        self.each(device, |stat| (stat.allocated, stat.freed) = (0, 0));
    }

    fn each(&mut self, device: i32, change: impl Fn(&mut Stat)) {
        for (_, counted) in self.0.range_mut((device, 0)..=(device, u64::MAX)) {
            change(&mut counted.count);
            change(&mut counted.bytes);
        }
    }

    fn of(&mut self, served: &Served) -> Option<&mut Counted> {
        let is_counted = matches!(served.component, Some(Component::Linear | Component::PoolsHeld));
        is_counted.then(|| self.0.entry((served.device, served.context_id)).or_default())
    }
}

fn increase(stat: &mut Stat, amount: u64) {
    stat.current += amount;
    stat.allocated += amount;
    stat.peak = stat.peak.max(stat.current);
}

fn decrease(stat: &mut Stat, amount: u64) {
    stat.current = stat.current.saturating_sub(amount);
    stat.freed += amount;
}

fn add(stat: &mut Stat, more: &Stat) {
    stat.current += more.current;
    stat.peak += more.peak;
    stat.allocated += more.allocated;
    stat.freed += more.freed;
}

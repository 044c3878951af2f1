//! How often something happened since the last look.

use std::collections::HashMap;
use std::time::Instant;

use super::Look;
use crate::live::CallSite;
use crate::show;

/// What the last looks counted.
#[derive(Default)]
pub(super) struct Rates(HashMap<u32, Counts>);

struct Counts {
    time: Instant,
    allocations: u64,
    waits: u64,
    by_site: HashMap<Vec<String>, u64>,
}

impl Rates {
    pub(super) fn note(&mut self, looks: &[Look]) {
        self.0 = looks.iter().map(|look| (look.process.0, Counts::of(look))).collect();
    }

    pub(super) fn allocations(&self, look: &Look) -> String {
        self.rate(look, look.statistics.allocations_served, |counts| Some(counts.allocations))
    }

    pub(super) fn waits(&self, look: &Look) -> String {
        self.rate(look, look.statistics.waited().0, |counts| Some(counts.waits))
    }

    pub(super) fn of_site(&self, look: &Look, site: &CallSite) -> String {
        self.rate(look, site.allocations, |counts| counts.by_site.get(&site.frames).copied())
    }

    /// `-` where there was no look before.
    fn rate(&self, look: &Look, now: u64, before: impl Fn(&Counts) -> Option<u64>) -> String {
        let last = self.0.get(&look.process.0);
        let Some((last, before)) = last.and_then(|last| Some((last, before(last)?))) else {
            return "-".to_string();
        };
        let seconds = look.time.duration_since(last.time).as_secs_f64();
        show::per_second(now.saturating_sub(before), seconds.max(1e-3))
    }
}

impl Counts {
    fn of(look: &Look) -> Counts {
        let statistics = &look.statistics;
        let sites = statistics.call_sites.iter().flatten();
        Counts {
            time: look.time,
            allocations: statistics.allocations_served,
            waits: statistics.waited().0,
            by_site: sites.map(|site| (site.frames.clone(), site.allocations)).collect(),
        }
    }
}

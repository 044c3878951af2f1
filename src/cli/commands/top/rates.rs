//! Computes how often events happened since the last sample.

use std::collections::HashMap;
use std::time::Instant;

use super::samples::Sample;
use crate::live::{CallSite, Frame};

/// Counts of the last samples, by process number.
#[derive(Default)]
pub(super) struct Rates(HashMap<u32, Counts>);

struct Counts {
    time: Instant,
    allocations: u64,
    waits: u64,
    by_site: HashMap<Vec<Frame>, u64>,
}

impl Rates {
    pub(super) fn note(&mut self, samples: &[Sample]) {
        self.0 = samples.iter().map(|sample| (sample.process.0, Counts::of(sample))).collect();
    }

    pub(super) fn allocations(&self, sample: &Sample) -> Option<f64> {
        self.rate(sample, sample.statistics.allocations_served, |counts| Some(counts.allocations))
    }

    pub(super) fn waits(&self, sample: &Sample) -> Option<f64> {
        self.rate(sample, sample.statistics.waited().0, |counts| Some(counts.waits))
    }

    pub(super) fn of_site(&self, sample: &Sample, site: &CallSite) -> Option<f64> {
        self.rate(sample, site.allocations, |counts| counts.by_site.get(&site.frames).copied())
    }

    /// Returns the rate per second, or `None` if there was no earlier sample.
    fn rate(
        &self,
        sample: &Sample,
        now: u64,
        before: impl Fn(&Counts) -> Option<u64>,
    ) -> Option<f64> {
        let last = self.0.get(&sample.process.0)?;
        let before = before(last)?;
        let seconds = sample.time.saturating_duration_since(last.time).as_secs_f64();
        Some(now.saturating_sub(before) as f64 / seconds.max(1e-3))
    }
}

impl Counts {
    fn of(sample: &Sample) -> Counts {
        let statistics = &sample.statistics;
        let sites = statistics.call_sites.iter().flatten();
        Counts {
            time: sample.time,
            allocations: statistics.allocations_served,
            waits: statistics.waited().0,
            by_site: sites.map(|site| (site.frames.clone(), site.allocations)).collect(),
        }
    }
}

//! Totals of the lifetimes of a device's blocks by call site.

use std::collections::HashMap;

use crate::lifetimes::{Lifetime, Lifetimes, Moment};
use crate::model::{Device, StackId, TextId};
use crate::temporary;

/// One call site: a stack and the library that holds the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Site {
    pub stack: StackId,
    pub category: TextId,
    /// Range of the program, if sites are kept apart by range; the empty text if it was in none.
    pub range: Option<TextId>,
    pub totals: Totals,
}

/// Totals of a site. Bytes are requested bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Bytes held at the requested moment.
    pub live_bytes: u64,
    pub live_count: u64,
    /// Bytes held at the peak of the device, not of the site.
    pub peak_bytes: u64,
    pub peak_count: u64,
    /// Bytes held at the end.
    pub end_bytes: u64,
    pub end_count: u64,
    /// Bytes allocated in the history, without blocks from before it.
    pub allocated_bytes: u64,
    pub allocated_count: u64,
    /// Size of the largest block, live or not.
    pub largest_bytes: u64,
    /// The temporary part of these: see [`temporary`](crate::temporary()).
    pub temporary_bytes: u64,
    pub temporary_count: u64,
    /// Number of lifetimes that are entirely in the history. `whole_us` is the sum of their
    /// durations.
    pub whole_count: u64,
    pub whole_us: u64,
}

/// Amount by which sites are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteKey {
    /// Bytes held at the requested moment.
    Live,
    /// Bytes held at the peak.
    Peak,
    /// Bytes allocated, freed or not.
    Allocated,
    /// Number of allocations.
    Count,
    /// Number of temporary allocations.
    Temporary,
}

impl SiteKey {
    pub fn weight(self, totals: &Totals) -> u64 {
        match self {
            SiteKey::Live => totals.live_bytes,
            SiteKey::Peak => totals.peak_bytes,
            SiteKey::Allocated => totals.allocated_bytes,
            SiteKey::Count => totals.allocated_count,
            SiteKey::Temporary => totals.temporary_count,
        }
    }
}

impl Totals {
    pub fn average_life_us(&self) -> Option<u64> {
        self.whole_us.checked_div(self.whole_count)
    }

    /// Adds the totals of another device, or of a stack that is shown as the same site.
    pub fn add(&mut self, other: &Totals) {
        let pairs = [
            (&mut self.live_bytes, other.live_bytes),
            (&mut self.live_count, other.live_count),
            (&mut self.peak_bytes, other.peak_bytes),
            (&mut self.peak_count, other.peak_count),
            (&mut self.end_bytes, other.end_bytes),
            (&mut self.end_count, other.end_count),
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.allocated_count, other.allocated_count),
            (&mut self.temporary_bytes, other.temporary_bytes),
            (&mut self.temporary_count, other.temporary_count),
            (&mut self.whole_count, other.whole_count),
            (&mut self.whole_us, other.whole_us),
        ];
        for (sum, amount) in pairs {
            *sum = sum.saturating_add(amount);
        }
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
    }

    fn add_life(&mut self, device: &Device, lifetimes: &Lifetimes, life: &Lifetime, at: Moment) {
        let mut one = Totals { largest_bytes: life.bytes, ..Totals::default() };
        if life.is_live_at(at) {
            (one.live_bytes, one.live_count) = (life.bytes, 1);
        }
        if life.is_live_at(lifetimes.peak) {
            (one.peak_bytes, one.peak_count) = (life.bytes, 1);
        }
        if life.is_live_at(lifetimes.last) {
            (one.end_bytes, one.end_count) = (life.bytes, 1);
        }
        if let Some(allocated) = life.allocated_by() {
            (one.allocated_bytes, one.allocated_count) = (life.bytes, 1);
            if let Some(freed) = life.freed_by() {
                let time_us = |index: usize| device.entries.at(index).time_us;
                one.whole_count = 1;
                one.whole_us = time_us(freed).saturating_sub(time_us(allocated));
            }
        }
        self.add(&one);
    }
}

/// Returns all sites of a device, in the order in which they first allocated. `live` is what they
/// hold at `at`.
pub fn sites(device: &Device, lifetimes: &Lifetimes, at: Moment) -> Vec<Site> {
    sites_by(device, lifetimes, at, |_| None)
}

/// Returns [`sites`] kept apart by range, which the entry of an allocation tells. The range of
/// blocks from before the history is unknown.
pub fn sites_of_ranges(device: &Device, lifetimes: &Lifetimes, at: Moment) -> Vec<Site> {
    let said = |life: &Lifetime| Some(device.entries.at(life.allocated_by()?).user_metadata);
    sites_by(device, lifetimes, at, |life| Some(said(life).unwrap_or(TextId::EMPTY)))
}

fn sites_by(
    device: &Device,
    lifetimes: &Lifetimes,
    at: Moment,
    range: impl Fn(&Lifetime) -> Option<TextId>,
) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    let mut indices: HashMap<(StackId, TextId, Option<TextId>), usize> = HashMap::new();
    let temporary = temporary::flags(device, lifetimes);
    for (life, is_temporary) in lifetimes.all.iter().zip(temporary) {
        let (stack, category, range) = (life.stack, life.category, range(life));
        let index = *indices.entry((stack, category, range)).or_insert_with(|| {
            sites.push(Site { stack, category, range, ..Site::default() });
            sites.len() - 1
        });
        let totals = &mut sites[index].totals;
        totals.add_life(device, lifetimes, life, at);
        if is_temporary {
            totals.temporary_bytes = totals.temporary_bytes.saturating_add(life.bytes);
            totals.temporary_count += 1;
        }
    }
    sites
}

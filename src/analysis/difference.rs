//! Changes from one snapshot to another, by call site.

use std::collections::HashMap;

use crate::aggregate::{Aggregate, Group, Key};
use crate::model::Snapshot;
use crate::names::Names;
use crate::sites::{Site, Totals};

/// A site of two files. If a file lacks the site, its totals are zero there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteChange {
    /// The site with the totals of the second file.
    pub site: Site,
    pub before: Totals,
}

impl SiteChange {
    /// Returns whether the first file held nothing here.
    pub fn is_new(&self) -> bool {
        self.before.live_count == 0
    }

    /// Returns whether the second file holds nothing here.
    pub fn is_gone(&self) -> bool {
        self.site.totals.live_count == 0
    }

    /// Returns the change of the live bytes from the first file to the second.
    pub fn growth_bytes(&self) -> i128 {
        i128::from(self.site.totals.live_bytes) - i128::from(self.before.live_bytes)
    }

    pub fn growth_count(&self) -> i128 {
        i128::from(self.site.totals.live_count) - i128::from(self.before.live_count)
    }
}

/// Returns the sites whose live memory differs, largest change first. Equal changes keep the order
/// of the second file.
pub fn difference(
    common: &Snapshot,
    names: &Names,
    group: Group,
    before: &Aggregate,
    after: &Aggregate,
) -> Vec<SiteChange> {
    let weight = |totals: &Totals| totals.live_bytes;
    let mut changes: Vec<SiteChange> = after
        .grouped(common, names, group, weight)
        .into_iter()
        .map(|site| SiteChange { site, before: Totals::default() })
        .collect();
    let key = |site: &Site| (Key::of(site, common, names, group), site.category);
    let mut indices: HashMap<_, usize> =
        changes.iter().enumerate().map(|(index, change)| (key(&change.site), index)).collect();
    for site in before.grouped(common, names, group, weight) {
        let index = *indices.entry(key(&site)).or_insert_with(|| {
            let gone = Site { totals: Totals::default(), ..site };
            changes.push(SiteChange { site: gone, before: Totals::default() });
            changes.len() - 1
        });
        changes[index].before = site.totals;
    }
    changes.retain(|change| change.growth_bytes() != 0 || change.growth_count() != 0);
    changes.sort_by_key(|change| std::cmp::Reverse(change.growth_bytes().abs()));
    changes
}

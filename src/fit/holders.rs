//! The call sites that hold most when most is needed: what has to change if no options help.

use std::cmp::Reverse;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Aggregate, Group, Site, SiteKey, When};

use crate::device_fit::DeviceFit;

pub struct Holders {
    /// Has the names of the sites.
    pub common: Snapshot,
    pub names: Names,
    /// Sites, the one that holds most first.
    pub sites: Vec<Site>,
}

impl Holders {
    /// Returns the holders on the device with this ordinal, or `None` if the run fits or there is
    /// no verdict.
    pub fn of(snapshot: &Snapshot, device: u32, fit: &DeviceFit) -> Option<Holders> {
        fit.fits().filter(|fits| !fits)?;
        let mut common = Snapshot::default();
        let mut aggregate = Aggregate::new(Group::Stack);
        let then = When::Entry(fit.requests.peak_moment().into());
        aggregate.add(&mut common, snapshot, then, Some(device));
        let names = Names::of(&common);
        let weight = |site: &Site| SiteKey::Live.weight(&site.totals);
        let mut sites =
            aggregate.grouped(&common, &names, Group::Stack, |it| SiteKey::Live.weight(it));
        sites.retain(|site| weight(site) > 0);
        sites.sort_by_key(|site| Reverse(weight(site)));
        Some(Holders { common, names, sites })
    }
}

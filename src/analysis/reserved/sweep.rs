//! Finds what exists at ascending moments, by address.

use std::collections::BTreeMap;

use crate::lifetimes::Moment;

pub(super) struct Sweep {
    /// `(address, from, until)`: each exists in the moments `from..until`.
    all: Vec<(u64, Moment, Moment)>,
    /// Indices ordered by `from` and by `until`, and how many of each were passed.
    coming: Vec<u32>,
    came: usize,
    going: Vec<u32>,
    went: usize,
    now: BTreeMap<u64, u32>,
}

impl Sweep {
    pub(super) fn of(all: impl Iterator<Item = (u64, Moment, Moment)>) -> Sweep {
        let all: Vec<_> = all.collect();
        let mut coming: Vec<u32> = (0..all.len() as u32).collect();
        let mut going = coming.clone();
        coming.sort_by_key(|&index| all[index as usize].1);
        going.sort_by_key(|&index| all[index as usize].2);
        Sweep { all, coming, came: 0, going, went: 0, now: BTreeMap::new() }
    }

    /// Returns how many exist now.
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// Returns the indices of those that exist.
    pub(super) fn at(&mut self, moment: Moment) -> impl Iterator<Item = usize> {
        while let Some(&index) = self.coming.get(self.came) {
            let (address, from, until) = self.all[index as usize];
            if from > moment {
                break;
            }
            self.came += 1;
            if until > moment {
                self.now.insert(address, index);
            }
        }
        while let Some(&index) = self.going.get(self.went) {
            let (address, _, until) = self.all[index as usize];
            if until > moment {
                break;
            }
            self.went += 1;
            // The address may have been reused meanwhile.
            if self.now.get(&address) == Some(&index) {
                self.now.remove(&address);
            }
        }
        self.now.values().map(|&index| index as usize)
    }
}

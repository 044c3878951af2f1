//! Records how much memory each process held at the last looks.

use std::collections::{HashMap, VecDeque};

use super::super::lines::{self, About};
use super::super::samples::Look;

/// Number of looks kept, as many as a wide terminal shows.
const LOOKS_MAX: usize = 400;

#[derive(Default)]
pub(super) struct History(HashMap<About, VecDeque<u64>>);

impl History {
    /// Adds the values of a look. Processes that have gone are dropped; those that do not respond
    /// are kept.
    pub(super) fn note(&mut self, look: &Look) {
        let is_there = |about: &About| match about {
            About::Process(process, _) => {
                let mut there = look.samples.iter().map(|sample| sample.process);
                there.any(|it| it == *process) || look.silent.contains(process)
            }
            About::Site(..) => false,
        };
        self.0.retain(|about, _| is_there(about));
        for sample in &look.samples {
            for device in sample.statistics.devices.keys() {
                let about = About::Process(sample.process, Some(*device));
                let bytes = self.0.entry(about).or_default();
                bytes.push_back(lines::allocated(sample, *device));
                if bytes.len() > LOOKS_MAX {
                    bytes.pop_front();
                }
            }
        }
    }

    /// Returns the bytes at the last `looks` looks, latest last.
    pub(super) fn last(&self, about: &About, looks: usize) -> Vec<u64> {
        let Some(bytes) = self.0.get(about) else { return Vec::new() };
        bytes.iter().skip(bytes.len().saturating_sub(looks)).copied().collect()
    }
}

//! Merges several files, or several devices, into one table of sites with common names.
//!
//! Stacks of different files are equal if the texts of their frames are equal. Lines move between
//! two versions of a program, so sites may also be grouped by a part of the stack ([`Group`]).

use std::collections::HashMap;

use crate::lifetimes::{Lifetimes, Moment};
use crate::model::{Frame, FrameId, GRAPHS, HOST_DEVICE, Snapshot, StackId, TextId};
use crate::names::{self, Names};
use crate::sites::{Site, Totals, sites, sites_of_ranges};
use crate::{When, reserved_over_time};

/// Key by which sites are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// The whole stack.
    Stack,
    /// The line of the stack's site frame; callers are ignored.
    Line,
    Function,
    /// The function that the thread runs, of the stack's outermost informative frame. Threads that
    /// run the same function are one: files have no numbers of threads.
    Thread,
    /// The range that the program was in; the stack is ignored.
    Range,
}

/// Sites of one or more files.
#[derive(Clone, Debug, Default)]
pub struct Aggregate {
    /// The category of each site is the name of its library, never empty.
    pub sites: Vec<Site>,
    pub devices: Vec<DeviceSums>,
    /// Whether sites are kept apart by range, as [`Group::Range`] requires.
    by_range: bool,
}

/// Totals of one device of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSums {
    /// The ordinal, or [`HOST_DEVICE`], or [`GRAPHS`].
    pub device: u32,
    pub entries_count: u64,
    /// The requested moment. `at_us` is its time since the first entry.
    pub at: Moment,
    pub at_us: u64,
    pub at_bytes: u64,
    pub at_reserved_bytes: u64,
    pub peak: Moment,
    pub peak_us: u64,
    pub peak_bytes: u64,
    pub end_bytes: u64,
    pub end_reserved_bytes: u64,
    pub disagreements_count: u64,
}

impl Snapshot {
    /// Adds the texts and stacks of `other` to this snapshot. The `i`-th element of the result is
    /// the new id of stack `i` of `other`.
    pub fn adopt_names(&mut self, other: &Snapshot) -> Vec<StackId> {
        let mut texts: Vec<Option<TextId>> = vec![None; other.texts.len()];
        let mut text = |id: TextId| {
            *texts[id.0 as usize].get_or_insert_with(|| self.texts.add(other.texts.get(id)))
        };
        let frames: Vec<FrameId> = other
            .frames
            .all()
            .iter()
            .map(|frame| {
                let (name, filename) = (text(frame.name), text(frame.filename));
                self.frames.add(Frame { name, filename, line: frame.line })
            })
            .collect();
        let mut stack = |id| {
            let of_stack: Vec<FrameId> =
                other.stacks.get(id).iter().map(|frame| frames[frame.0 as usize]).collect();
            self.stacks.add(&of_stack)
        };
        other.stacks.ids().map(&mut stack).collect()
    }
}

impl Aggregate {
    /// Creates an aggregate whose sites are to be grouped by `group`.
    pub fn new(group: Group) -> Aggregate {
        Aggregate { by_range: group == Group::Range, ..Aggregate::default() }
    }

    /// Adds each device of a file that has entries or segments, or only `only_device`, which may be
    /// [`HOST_DEVICE`] or [`GRAPHS`]. The stacks and categories of the sites are ids in `common`.
    pub fn add(
        &mut self,
        common: &mut Snapshot,
        snapshot: &Snapshot,
        when: When,
        only_device: Option<u32>,
    ) {
        let stacks = common.adopt_names(snapshot);
        common.file_bytes = common.file_bytes.saturating_add(snapshot.file_bytes);
        let others = [(HOST_DEVICE, &snapshot.host), (GRAPHS, &snapshot.graphs)];
        for (ordinal, device) in (0..).zip(&snapshot.devices).chain(others) {
            let is_wanted = match only_device {
                Some(wanted) => wanted == ordinal,
                None => !matches!(ordinal, HOST_DEVICE | GRAPHS),
            };
            if !is_wanted || (device.entries.is_empty() && device.segments.is_empty()) {
                continue;
            }
            let lifetimes = Lifetimes::of(device);
            let Some(at) = when.resolve(device, &lifetimes) else { continue };
            let sites = if self.by_range { sites_of_ranges } else { sites };
            for mut site in sites(device, &lifetimes, at) {
                site.stack = stacks[site.stack.0 as usize];
                site.category = common.texts.add(names::library(snapshot, site.category));
                site.range = site.range.map(|range| common.texts.add(snapshot.texts.get(range)));
                self.sites.push(site);
            }
            let reserved = reserved_over_time(device);
            let since_us = |moment: Moment| {
                let time_us = |index: usize| device.entries.get(index).map_or(0, |it| it.time_us);
                time_us((moment as usize).saturating_sub(1)).saturating_sub(time_us(0))
            };
            self.devices.push(DeviceSums {
                device: ordinal,
                entries_count: device.entries.len() as u64,
                at,
                at_us: since_us(at),
                at_bytes: lifetimes
                    .live_at(at)
                    .fold(0, |sum: u64, life| sum.saturating_add(life.bytes)),
                at_reserved_bytes: reserved[at as usize],
                peak: lifetimes.peak,
                peak_us: since_us(lifetimes.peak),
                peak_bytes: lifetimes.peak_bytes,
                end_bytes: lifetimes.end_bytes,
                end_reserved_bytes: reserved[lifetimes.last as usize],
                disagreements_count: lifetimes.disagreements_count,
            });
        }
    }

    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.sites.iter().for_each(|site| sum.add(&site.totals));
        sum
    }

    /// Returns the sites with the totals of each group added up. A group has the stack with the
    /// largest `weight`.
    pub fn grouped(
        &self,
        common: &Snapshot,
        names: &Names,
        group: Group,
        weight: impl Fn(&Totals) -> u64,
    ) -> Vec<Site> {
        let mut grouped: Vec<(u64, Site)> = Vec::new();
        let mut indices = HashMap::new();
        for site in &self.sites {
            let key = (Key::of(site, common, names, group), site.category);
            let index = *indices.entry(key).or_insert_with(|| {
                grouped.push((0, Site { totals: Totals::default(), ..*site }));
                grouped.len() - 1
            });
            let (most, sum) = &mut grouped[index];
            if weight(&site.totals) > *most {
                *most = weight(&site.totals);
                sum.stack = site.stack;
            }
            sum.totals.add(&site.totals);
        }
        grouped.into_iter().map(|(_, site)| site).collect()
    }
}

impl Group {
    /// Returns a stack that stands for a group: if callers are ignored, only the frame that the
    /// stacks share.
    pub fn stack_of_all(self, common: &mut Snapshot, names: &Names, stack: StackId) -> StackId {
        let frame = match self {
            Group::Line | Group::Function => names.site(common, stack),
            Group::Thread => names.outermost(common, stack),
            Group::Stack | Group::Range => None,
        };
        frame.map_or(stack, |frame| common.stacks.add(&[frame]))
    }
}

/// Identity of a site within a grouping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    Stack(StackId),
    Line(FrameId),
    Function(TextId, TextId),
    Range(Option<TextId>),
}

impl Key {
    pub(crate) fn of(site: &Site, common: &Snapshot, names: &Names, group: Group) -> Key {
        let function = |frame| {
            let frame = common.frames.get(frame);
            Key::Function(frame.name, frame.filename)
        };
        let key = match group {
            Group::Range => return Key::Range(site.range),
            Group::Stack => None,
            Group::Line => names.site(common, site.stack).map(Key::Line),
            Group::Function => names.site(common, site.stack).map(function),
            Group::Thread => names.outermost(common, site.stack).map(function),
        };
        key.unwrap_or(Key::Stack(site.stack))
    }
}

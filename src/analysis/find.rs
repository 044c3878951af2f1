//! Finds what an address belongs to at a moment, or belonged to last: its block, the segment around
//! it, and the blocks beside it.

use std::collections::HashMap;

use crate::lifetimes::{Lifetime, Lifetimes, Moment};
use crate::model::{Action, BlockState, Device, Segment};
use crate::reserved::Reserved;

/// Description of an address on one device.
#[derive(Clone, Debug)]
pub struct Found {
    /// The moment that the other fields describe.
    pub moment: Moment,
    pub place: Place,
    /// The block that holds the address, or the last one that held it.
    pub life: Option<NamedLife>,
    /// Blocks that held the address before `life`.
    pub earlier_count: usize,
    /// The segment around the address, with its blocks.
    pub segment: Option<Segment>,
    /// Number of times that the address was released as a segment before. PyTorch uses it in the
    /// name of a segment.
    pub segment_version: u64,
    /// The entry that reserved this part of the segment. `released_by` is the one that released it
    /// last.
    pub reserved_by: Option<usize>,
    pub released_by: Option<usize>,
    /// The block at the address, and the blocks beside it up to the next one in use on each side.
    pub beside: Vec<BesideBlock>,
    /// The nearest segments and their distances, if no segment holds the address.
    pub below: Option<(Segment, u64)>,
    pub above: Option<(Segment, u64)>,
}

/// Position of an address. Offsets count from the first byte of the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Memory that the program requested and holds.
    Held { offset: u64 },
    /// Rounding of a held block, `past` bytes past the end of the request.
    PastEnd { past: u64 },
    /// A freed block that a stream may still use.
    Pending { offset: u64 },
    /// A free part of a segment.
    Free,
    /// Memory outside all segments.
    Unreserved,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedLife {
    pub life: Lifetime,
    /// Number of times that the address was freed before. PyTorch uses it in the name of a block.
    pub version: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BesideBlock {
    pub address: u64,
    pub bytes: u64,
    pub state: BlockState,
    /// Whether this block holds the address.
    pub is_at: bool,
    /// The lifetime of the block if it is in use.
    pub life: Option<NamedLife>,
}

impl Lifetime {
    /// Returns whether the request of the block covers the address.
    pub fn covers(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.bytes.max(1))
    }
}

/// Returns how many frees of the address PyTorch's viewer counts before this entry.
pub fn version_of(device: &Device, address: u64, before: Moment) -> u64 {
    let entries = device.entries.range(0..(before as usize).min(device.entries.len()));
    let is_free = |action| matches!(action, Action::Free | Action::FreeCompleted);
    entries.filter(|entry| entry.address == address && is_free(entry.action)).count() as u64
}

/// Returns [`version_of`] of every block, in the order of `lifetimes.all`.
pub fn versions_of(device: &Device, lifetimes: &Lifetimes) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lifetimes.all.len() as u32).collect();
    order.sort_by_key(|&index| lifetimes.all[index as usize].begin);
    let mut versions = vec![0; order.len()];
    let mut freed: HashMap<u64, u32> = HashMap::new();
    let mut happened = 0;
    for index in order {
        let life = &lifetimes.all[index as usize];
        let until = (life.begin as usize).min(device.entries.len());
        for entry in device.entries.range(happened..until.max(happened)) {
            if matches!(entry.action, Action::Free | Action::FreeCompleted) {
                *freed.entry(entry.address).or_default() += 1;
            }
        }
        happened = happened.max(until);
        versions[index as usize] = freed.get(&life.address).copied().unwrap_or_default();
    }
    versions
}

fn named(device: &Device, life: &Lifetime) -> NamedLife {
    NamedLife { life: *life, version: version_of(device, life.address, life.begin) }
}

/// Returns the moment just after the allocation of the block with this PyTorch name, if the history
/// has it.
pub fn moment_of_version(
    device: &Device,
    lifetimes: &Lifetimes,
    address: u64,
    version: u64,
) -> Option<Moment> {
    let of_address = lifetimes.all.iter().filter(|life| life.address == address);
    let mut alike = of_address.filter(|life| named(device, life).version == version);
    alike.next().map(|life| life.begin)
}

/// Returns what is known about the address at a moment. Returns `None` if the device never had
/// memory there.
pub fn find(device: &Device, lifetimes: &Lifetimes, address: u64, moment: Moment) -> Option<Found> {
    let segments = Reserved::of(device, lifetimes).at(moment);
    let is_around = |segment: &&Segment| (segment.address..segment.end()).contains(&address);
    let segment = segments.iter().find(is_around).cloned();
    let at = segment.as_ref().and_then(|segment| {
        let is_at = |block: &crate::model::Block| {
            (block.address..block.address.saturating_add(block.bytes)).contains(&address)
        };
        segment.blocks.iter().position(is_at)
    });
    let block = segment.as_ref().zip(at).map(|(segment, at)| segment.blocks[at]);
    let in_use = block.filter(|block| block.state != BlockState::Free);
    // A block in use counts even if the address is past the end of its request.
    let life_at = |address: u64| {
        let there = |life: &&Lifetime| life.address == address && life.begin <= moment;
        let lives = lifetimes.all.iter().filter(there);
        lives.filter(|life| life.end.max(life.reusable) > moment).max_by_key(|life| life.begin)
    };
    let mut covering: Vec<&Lifetime> =
        lifetimes.all.iter().filter(|life| life.begin <= moment && life.covers(address)).collect();
    covering.sort_by_key(|life| (life.begin, life.end));
    let life = match in_use {
        Some(block) => life_at(block.address).or(covering.last().copied()),
        None => covering.last().copied(),
    };
    let earlier_count =
        covering.iter().filter(|it| life.is_some_and(|life| it.begin < life.begin)).count();
    let place = match (in_use, segment.is_some()) {
        (Some(block), _) => {
            let offset = address - block.address;
            match block.state {
                BlockState::Pending => Place::Pending { offset },
                _ if offset >= block.requested_bytes => {
                    Place::PastEnd { past: offset - block.requested_bytes }
                }
                _ => Place::Held { offset },
            }
        }
        (None, true) => Place::Free,
        (None, false) => Place::Unreserved,
    };
    let happened = (moment as usize).min(device.entries.len());
    let last_of = |first: Action, second: Action| {
        device.entries.range(0..happened).rposition(|entry| {
            let is_of = entry.action == first || entry.action == second;
            let offset = address.checked_sub(entry.address);
            is_of && offset.is_some_and(|offset| offset < entry.bytes)
        })
    };
    let reserved_by = last_of(Action::SegmentAlloc, Action::SegmentMap);
    let released_by = last_of(Action::SegmentFree, Action::SegmentUnmap)
        .filter(|released| segment.is_none() || reserved_by.is_none_or(|by| by < *released));
    let segment_begin = match (&segment, released_by) {
        (Some(segment), _) => Some(segment.address),
        (None, Some(released)) => Some(device.entries.at(released).address),
        (None, None) => None,
    };
    // A released segment has the version that it had until its release.
    let until = if segment.is_none() { released_by.unwrap_or_default() } else { happened };
    let segment_version = segment_begin.map_or(0, |begin| {
        let is_release = |action| matches!(action, Action::SegmentFree | Action::SegmentUnmap);
        let entries = device.entries.range(0..until);
        entries.filter(|entry| entry.address == begin && is_release(entry.action)).count() as u64
    });
    if segment.is_none() && life.is_none() && released_by.is_none() && segments.is_empty() {
        return None;
    }
    let named_at = |address| life_at(address).map(|life| named(device, life));
    let beside = match (&segment, at) {
        (Some(segment), Some(at)) => beside_of(segment, at, named_at),
        _ => Vec::new(),
    };
    let (mut below, mut above) = (None, None);
    if segment.is_none() {
        let lower = segments.iter().filter(|it| it.end() <= address);
        let nearest = lower.max_by_key(|it| it.end());
        below = nearest.map(|it| (it.clone(), address - it.end()));
        let higher = segments.iter().filter(|it| it.address > address);
        let nearest = higher.min_by_key(|it| it.address);
        above = nearest.map(|it| (it.clone(), it.address - address));
    }
    let life = life.map(|life| named(device, life));
    Some(Found {
        moment,
        place,
        life,
        earlier_count,
        segment,
        segment_version,
        reserved_by,
        released_by,
        beside,
        below,
        above,
    })
}

/// Returns the block at `at`, and on each side the blocks up to the first one in use.
fn beside_of(
    segment: &Segment,
    at: usize,
    named_at: impl Fn(u64) -> Option<NamedLife>,
) -> Vec<BesideBlock> {
    let is_in_use = |index: &usize| segment.blocks[*index].state != BlockState::Free;
    let first = (0..at).rev().find(is_in_use).unwrap_or(0);
    let end = segment.blocks.len();
    let last = (at + 1..end).find(is_in_use).unwrap_or(end - 1);
    let of_block = |index: usize| {
        let block = &segment.blocks[index];
        BesideBlock {
            address: block.address,
            bytes: block.bytes,
            state: block.state,
            is_at: index == at,
            life: if is_in_use(&index) { named_at(block.address) } else { None },
        }
    };
    (first..=last).map(of_block).collect()
}

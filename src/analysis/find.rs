//! What an address belongs to at a moment, or belonged to last: its block, the segment around it
//! and the blocks beside it.

use std::collections::HashMap;

use crate::lifetimes::{Lifetime, Lifetimes, Moment};
use crate::model::{Action, BlockState, Device, Segment};
use crate::reserved::Reserved;

/// What is known of an address on one device.
#[derive(Clone, Debug)]
pub struct Found {
    /// The moment of which the rest tells.
    pub moment: Moment,
    pub place: Place,
    /// The block that holds the address, or else the last one that held it.
    pub life: Option<NamedLife>,
    /// Blocks that held the address before `life`.
    pub earlier_count: usize,
    /// The segment around the address, with its blocks.
    pub segment: Option<Segment>,
    /// How often its address was released as a segment before: the number in PyTorch's name for it.
    pub segment_version: u64,
    /// The entry that reserved this part of the segment, and the one that released it last.
    pub reserved_by: Option<usize>,
    pub released_by: Option<usize>,
    /// The block at the address and those beside it, up to the next one in use on each side.
    pub beside: Vec<BesideBlock>,
    /// Without a segment: the nearest ones, and how far away they are.
    pub below: Option<(Segment, u64)>,
    pub above: Option<(Segment, u64)>,
}

/// Where an address is. Offsets count from the block's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In what the program asked for and holds.
    Held { offset: u64 },
    /// Behind that, in what the block was rounded up by: `past` bytes from the end of the request.
    PastEnd { past: u64 },
    /// In a block that was freed and that a stream may still use.
    Pending { offset: u64 },
    /// In a free part of a segment.
    Free,
    /// In no segment.
    Unreserved,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedLife {
    pub life: Lifetime,
    /// How often its address was freed before: the number in PyTorch's name for it.
    pub version: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BesideBlock {
    pub address: u64,
    pub bytes: u64,
    pub state: BlockState,
    /// Whether it is the one that holds the address.
    pub is_at: bool,
    /// The life of the block, where it is in use.
    pub life: Option<NamedLife>,
}

impl Lifetime {
    /// Whether the address lies in what was requested.
    pub fn covers(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.bytes.max(1))
    }
}

/// How often PyTorch's viewer has seen the address freed before this entry.
pub fn version_of(device: &Device, address: u64, before: Moment) -> u64 {
    let entries = &device.entries[..(before as usize).min(device.entries.len())];
    let is_free = |action| matches!(action, Action::Free | Action::FreeCompleted);
    entries.iter().filter(|entry| entry.address == address && is_free(entry.action)).count() as u64
}

/// The same of all blocks, in the order of `lifetimes.all`.
pub fn versions_of(device: &Device, lifetimes: &Lifetimes) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lifetimes.all.len() as u32).collect();
    order.sort_by_key(|&index| lifetimes.all[index as usize].begin);
    let mut versions = vec![0; order.len()];
    let mut freed: HashMap<u64, u32> = HashMap::new();
    let mut happened = 0;
    for index in order {
        let life = &lifetimes.all[index as usize];
        let until = (life.begin as usize).min(device.entries.len());
        for entry in &device.entries[happened..until] {
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

/// The moment just after the allocation of the block that PyTorch names so, if the history has it.
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

/// What is known of the address at the moment. `None`: the device never had memory there.
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
    // A block in use is the one that lives there, also where the address is past the request.
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
    let happened = &device.entries[..(moment as usize).min(device.entries.len())];
    let last_of = |first: Action, second: Action| {
        happened.iter().rposition(|entry| {
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
        (None, Some(released)) => Some(device.entries[released].address),
        (None, None) => None,
    };
    // What was released last is named as it was until then.
    let until = if segment.is_none() { released_by.unwrap_or_default() } else { happened.len() };
    let segment_version = segment_begin.map_or(0, |begin| {
        let is_release = |action| matches!(action, Action::SegmentFree | Action::SegmentUnmap);
        let entries = happened[..until].iter();
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

/// The block at `at`, and on each side the blocks up to the first one in use.
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

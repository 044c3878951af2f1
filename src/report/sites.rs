//! Which frames name the call site of a stack.
//!
//! One frame does, as a rule (`cachealloc_analysis::names`). But programs have functions through which all
//! their allocations go, and "all of it from `get`" says nothing. So a frame that stands for more than a
//! half of all allocations, or of all bytes, is split by its callers: where its stacks first
//! differ. The same for all files, or one could not compare them.

use std::collections::{HashMap, HashSet};

use cachealloc_analysis::model::{Action, BlockState, Snapshot, StackId};
use cachealloc_analysis::names::Names;

/// Frames by their numbers in the tables, the innermost first.
pub(crate) type Chain = Vec<u32>;

/// A stack, and what it stands for.
pub(crate) struct Weighed {
    pub file: usize,
    pub stack: StackId,
    /// The site's frame and its callers.
    pub frames: Chain,
    pub count: u64,
    pub bytes: u64,
}

/// A group is split so many times at most,
const SPLITS_MAX: usize = 3;
/// if it is more than one in so many,
const SHARE_LEAST: u64 = 2;
/// by a caller within so many frames.
const CALLERS_MAX: usize = 12;

/// All stacks of a file, with the numbers that `frame` gives to their frames.
pub(crate) fn weighed(
    file: usize,
    snapshot: &Snapshot,
    names: &Names,
    mut frame: impl FnMut(cachealloc_analysis::model::FrameId) -> u32,
) -> Vec<Weighed> {
    let mut weights: HashMap<StackId, (u64, u64)> = HashMap::new();
    let mut add = |stack, bytes| {
        let weight = weights.entry(stack).or_default();
        *weight = (weight.0 + 1, weight.1.saturating_add(bytes));
    };
    for device in &snapshot.devices {
        let allocs = device.entries.iter().filter(|entry| entry.action == Action::Alloc);
        allocs.for_each(|entry| add(entry.stack, entry.bytes));
        let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
        let held = blocks.filter(|block| block.state != BlockState::Free);
        held.for_each(|block| add(block.stack, block.bytes));
    }
    let stacks = snapshot.stacks.ids().filter(|stack| !stack.is_none());
    let weighed = stacks.map(|stack| {
        let site = names.site(snapshot, stack);
        let callers = names.callers(snapshot, stack).take(CALLERS_MAX);
        let (count, bytes) = weights.get(&stack).copied().unwrap_or_default();
        let frames = site.into_iter().chain(callers).map(&mut frame).collect();
        Weighed { file, stack, frames, count, bytes }
    });
    weighed.collect()
}

/// The chain of every stack: its site's frame, and where that is split, the caller.
pub(crate) fn chains(stacks: &[Weighed]) -> HashMap<(usize, StackId), Chain> {
    let sum = |of: fn(&Weighed) -> u64, group: &[&Weighed]| {
        group.iter().fold(0u64, |sum, stack| sum.saturating_add(of(stack)))
    };
    let all: Vec<_> = stacks.iter().collect();
    let (count, bytes) = (sum(|stack| stack.count, &all), sum(|stack| stack.bytes, &all));
    // Groups that may still be split, with their chain and how many frames of the stacks it covers.
    let mut groups: Vec<(Chain, usize, Vec<&Weighed>)> = by_frame(&all, 0)
        .into_iter()
        .map(|(frame, group)| (frame.into_iter().collect(), 1, group))
        .collect();
    let mut chains = HashMap::new();
    for split in 0..=SPLITS_MAX {
        for (chain, covered, group) in std::mem::take(&mut groups) {
            let is_large = sum(|stack| stack.count, &group) > count / SHARE_LEAST
                || sum(|stack| stack.bytes, &group) > bytes / SHARE_LEAST;
            let fork = (covered..=CALLERS_MAX).find(|&at| callers_at(&group, at) > 1);
            match fork {
                Some(at) if is_large && split < SPLITS_MAX => {
                    for (caller, group) in by_frame(&group, at) {
                        groups.push((
                            [chain.clone(), caller.into_iter().collect()].concat(),
                            at + 1,
                            group,
                        ));
                    }
                }
                _ => chains
                    .extend(group.iter().map(|stack| ((stack.file, stack.stack), chain.clone()))),
            }
        }
    }
    chains
}

fn callers_at(group: &[&Weighed], at: usize) -> usize {
    let callers = group.iter().map(|stack| stack.frames.get(at));
    callers.collect::<HashSet<_>>().len()
}

/// Parts of a group that have the same frame at this place, in the order in which they come.
fn by_frame<'a>(group: &[&'a Weighed], at: usize) -> Vec<(Option<u32>, Vec<&'a Weighed>)> {
    let mut parts: Vec<(Option<u32>, Vec<&Weighed>)> = Vec::new();
    let mut numbers: HashMap<Option<u32>, usize> = HashMap::new();
    for &stack in group {
        let frame = stack.frames.get(at).copied();
        let number = *numbers.entry(frame).or_insert_with(|| {
            parts.push((frame, Vec::new()));
            parts.len() - 1
        });
        parts[number].1.push(stack);
    }
    parts
}

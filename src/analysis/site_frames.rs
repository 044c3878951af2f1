//! Chooses the frames that name the call site of a stack.
//!
//! Usually one frame is enough ([`names`](crate::names)). But some programs allocate everything
//! through a few functions, and "all of it from `get`" does not help. So a frame that stands for
//! more than half of all allocations, or of all bytes, is split by its callers: where its stacks
//! first differ.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::model::{FrameId, Snapshot, StackId};
use crate::names::Names;

/// A stack and its weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weighed<F> {
    /// The site's frame, then its callers.
    pub frames: Vec<F>,
    pub count: u64,
    pub bytes: u64,
}

/// Most splits of a group.
const SPLITS_MAX: usize = 3;
/// A group is split if its share is more than one in this many.
const SHARE_LEAST: u64 = 2;
/// Number of callers among which a split is searched.
const CALLERS_MAX: usize = 12;

/// Returns the frames of a stack that may name it, innermost first.
pub fn candidates<'a>(
    snapshot: &'a Snapshot,
    names: &'a Names,
    stack: StackId,
) -> impl Iterator<Item = FrameId> + 'a {
    let site = names.site(snapshot, stack);
    site.into_iter().chain(names.callers(snapshot, stack).take(CALLERS_MAX))
}

/// Returns for each stack the frames that name it: its site's, and if that is split, the callers.
/// All stacks to be compared must be passed at once.
pub fn site_frames<F: Copy + Eq + Hash>(stacks: &[Weighed<F>]) -> Vec<Vec<F>> {
    let sum = |of: fn(&Weighed<F>) -> u64, group: &[usize]| {
        group.iter().fold(0u64, |sum, &stack| sum.saturating_add(of(&stacks[stack])))
    };
    let all: Vec<usize> = (0..stacks.len()).collect();
    let (count, bytes) = (sum(|stack| stack.count, &all), sum(|stack| stack.bytes, &all));
    // Groups that may still be split, with their frames and the number of frames of the stacks that
    // those cover.
    let mut groups: Vec<(Vec<F>, usize, Vec<usize>)> = by_frame(stacks, &all, 0)
        .into_iter()
        .map(|(frame, group)| (frame.into_iter().collect(), 1, group))
        .collect();
    let mut site_frames = vec![Vec::new(); stacks.len()];
    for split in 0..=SPLITS_MAX {
        for (frames, covered, group) in std::mem::take(&mut groups) {
            let is_large = sum(|stack| stack.count, &group) > count / SHARE_LEAST
                || sum(|stack| stack.bytes, &group) > bytes / SHARE_LEAST;
            let fork = (covered..=CALLERS_MAX).find(|&at| callers_at(stacks, &group, at) > 1);
            match fork {
                Some(at) if is_large && split < SPLITS_MAX => {
                    for (caller, group) in by_frame(stacks, &group, at) {
                        let frames = [frames.clone(), caller.into_iter().collect()].concat();
                        groups.push((frames, at + 1, group));
                    }
                }
                _ => group.iter().for_each(|&stack| site_frames[stack].clone_from(&frames)),
            }
        }
    }
    site_frames
}

fn callers_at<F: Copy + Eq + Hash>(stacks: &[Weighed<F>], group: &[usize], at: usize) -> usize {
    let callers = group.iter().map(|&stack| stacks[stack].frames.get(at));
    callers.collect::<HashSet<_>>().len()
}

/// Splits a group by the frame at this position, in the order of first occurrence.
fn by_frame<F: Copy + Eq + Hash>(
    stacks: &[Weighed<F>],
    group: &[usize],
    at: usize,
) -> Vec<(Option<F>, Vec<usize>)> {
    let mut parts: Vec<(Option<F>, Vec<usize>)> = Vec::new();
    let mut numbers: HashMap<Option<F>, usize> = HashMap::new();
    for &stack in group {
        let frame = stacks[stack].frames.get(at).copied();
        let number = *numbers.entry(frame).or_insert_with(|| {
            parts.push((frame, Vec::new()));
            parts.len() - 1
        });
        parts[number].1.push(stack);
    }
    parts
}

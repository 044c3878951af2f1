//! Weights of the stacks of a file, from which the frames that name call sites are chosen
//! (`cachealloc_analysis::site_frames`). The choice is the same for all files of a report, so that
//! they can be compared.

use std::collections::HashMap;

use cachealloc_analysis::model::{Action, BlockState, FrameId, Snapshot, StackId};
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Weighed, candidates};

/// Returns all stacks of a file, with the numbers that `frame` gives to their frames.
pub(crate) fn weighed(
    snapshot: &Snapshot,
    names: &Names,
    mut frame: impl FnMut(FrameId) -> u32,
) -> Vec<(StackId, Weighed<u32>)> {
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
        let (count, bytes) = weights.get(&stack).copied().unwrap_or_default();
        let frames = candidates(snapshot, names, stack).map(&mut frame).collect();
        (stack, Weighed { frames, count, bytes })
    });
    weighed.collect()
}

//! The categories of entries, by which PyTorch's viewer colours its timelines.
//!
//! * If there are categories, one that the viewer lists must be `unknown`. Otherwise it tries to
//!   add it to a list whose name it misspells (`categores`), and shows nothing. If each entry has
//!   a category, `unknown` replaces one that the viewer does not use. No entry is added for it: as
//!   in PyTorch, a file has no more entries than were asked for.
//! * The viewer lists the categories of devices only, and those of the first of the two entries of
//!   a free.
//! * It takes a block's category from the block's entry alone. If only live blocks were recorded,
//!   entries have no categories: nearly all would be `unknown`. Blocks always have theirs, for
//!   cachealloc's own tools.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::entry::{Action, Entry, StackId};
use crate::frames::{Describe, capped};
use crate::hash::BuildWordHasher;
use crate::snapshot::{Device, EntryList, HOST_DEVICE, Snapshot};
use crate::torch::words::UNKNOWN;

pub(super) struct Categories {
    /// Whether more than live blocks was recorded.
    has_history: bool,
    /// Whether entries of devices have categories.
    written: bool,
    /// The entry that has `unknown` instead of its category: its device and its index there.
    replaced: Option<(u32, usize)>,
    of_stacks: HashMap<StackId, Option<Arc<str>>, BuildWordHasher>,
    unknown: Arc<str>,
}

impl Categories {
    pub(super) fn of<E: EntryList>(
        snapshot: &Snapshot<E>,
        describe: &mut dyn Describe,
    ) -> Categories {
        let mut categories = Categories {
            has_history: has_history(snapshot),
            written: false,
            replaced: None,
            of_stacks: HashMap::default(),
            unknown: UNKNOWN.text.into(),
        };
        if categories.has_history {
            categories.choose(snapshot, describe);
        }
        categories
    }

    /// Returns the category of a stack, or `None` if it is unknown.
    pub(super) fn of_stack(
        &mut self,
        stack: StackId,
        describe: &mut dyn Describe,
    ) -> Option<Arc<str>> {
        if stack.is_none() {
            return None;
        }
        let known = || {
            let category = describe.category(stack);
            let is_known = !category.is_empty() && category != UNKNOWN.text;
            is_known.then(|| capped(&category).into())
        };
        self.of_stacks.entry(stack).or_insert_with(known).clone()
    }

    /// Returns the category to write for an entry whose stack has this category. Returns `None` if
    /// none is written.
    pub(super) fn of_entry(
        &self,
        place: (u32, usize),
        action: Action,
        category: Option<Arc<str>>,
    ) -> Option<Arc<str>> {
        let own = category.filter(|_| self.replaced != Some(place));
        match place.0 {
            _ if action == Action::FreeCompleted => None,
            HOST_DEVICE => own.filter(|_| self.has_history),
            _ => self.written.then(|| own.unwrap_or_else(|| self.unknown.clone())),
        }
    }

    fn choose<E: EntryList>(&mut self, snapshot: &Snapshot<E>, describe: &mut dyn Describe) {
        let (mut has_known, mut has_unknown) = (false, false);
        let mut best: Option<(Use, (u32, usize))> = None;
        for (number, device) in (0..).zip(&snapshot.devices) {
            let mut allocated = HashSet::<u64, BuildWordHasher>::default();
            for (index, entry) in device.entries.each().enumerate() {
                if entry.action == Action::FreeCompleted {
                    continue;
                }
                let is_known = self.of_stack(entry.stack, describe).is_some();
                has_known |= is_known;
                has_unknown |= !is_known;
                if has_known && has_unknown {
                    self.written = true;
                    return;
                }
                // The first of the best kind.
                if best.is_none_or(|(of, _)| of > Use::Nothing) {
                    let of = use_of(&entry, &mut allocated);
                    if best.is_none_or(|(before, _)| of < before) {
                        best = Some((of, (number, index)));
                    }
                }
            }
        }
        let replaced = best.filter(|(of, _)| has_known && *of < Use::Blocks);
        self.written = replaced.is_some();
        self.replaced = replaced.map(|(_, place)| place);
    }
}

/// The viewer's use of the category of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Nothing,
    /// The colour of a segment in the timeline of segments.
    Segments,
    /// The colour of a block.
    Blocks,
}

/// Returns the use of an entry's category. `allocated` holds the addresses of the
/// allocations before the entry.
fn use_of(entry: &Entry, allocated: &mut HashSet<u64, BuildWordHasher>) -> Use {
    match entry.action {
        Action::SegmentMap | Action::SegmentUnmap => Use::Nothing,
        Action::SegmentAlloc | Action::SegmentFree => Use::Segments,
        // The block has the colour of its allocation, if that is in the file.
        Action::Free | Action::FreeRequested if allocated.contains(&entry.address) => Use::Nothing,
        Action::Alloc => {
            allocated.insert(entry.address);
            Use::Blocks
        }
        // The viewer does not use the category of a failed allocation, but a report does.
        _ => Use::Blocks,
    }
}

/// Returns whether the snapshot has more than a last entry.
fn has_history<E: EntryList>(snapshot: &Snapshot<E>) -> bool {
    let more = |device: &Device<E>| device.recorded_from_start || device.entries.count() > 1;
    snapshot.devices.iter().any(more)
}

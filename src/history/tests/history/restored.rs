//! Restoring the file of a killed process, where the last entry is ahead of its row.

use std::collections::{BTreeMap, HashMap};

use cachealloc_history::persistent::layout::{IS_THERE, SegmentRow};
use cachealloc_history::persistent::{Leftover, restore};
use cachealloc_history::{Action, BlockState, Clock, Entry, HOST_DEVICE, StackId};

const ADDRESS: u64 = 0x7000;
const BYTES: u64 = 4096;

/// Pinned memory that was cached when its program was killed. `last` is the entry that its row
/// lacks.
fn left(last: Option<Action>) -> Leftover {
    let [first, second] = [StackId(1), StackId(2)];
    let entry =
        |action, stack| Entry { address: ADDRESS, bytes: BYTES, stack, action, ..Entry::default() };
    let mut entries = vec![
        entry(Action::SegmentAlloc, first),
        entry(Action::Alloc, first),
        entry(Action::Free, first),
    ];
    entries.extend(last.map(|action| entry(action, second)));
    let row = SegmentRow {
        address: ADDRESS,
        bytes: BYTES,
        stack: first,
        flags: IS_THERE,
        ..SegmentRow::default()
    };
    let mut leftover = Leftover {
        file_owner: cachealloc_history::persistent::FileOwner {
            process_id: 1,
            start: 1,
            namespace: 1,
        },
        level: 2,
        from_start: true,
        clock: Clock::default(),
        entries_max: 10,
        owners: vec![Default::default()],
        stacks: HashMap::new(),
        modules: BTreeMap::new(),
        python: HashMap::new(),
        settings: Vec::new(),
    };
    let owner = &mut leftover.owners[0];
    (owner.device, owner.is_foreign, owner.last_is_whole) = (HOST_DEVICE, true, true);
    (owner.entries, owner.segments) = (entries, vec![row]);
    leftover
}

/// A block that is handed out again has another stack than its segment.
#[test]
fn a_block_has_the_stack_of_its_own_request() {
    let block = |last| {
        let snapshot = restore(&left(last)).unwrap_or_else(|problem| panic!("{problem}")).snapshot;
        let block = &snapshot.host_segments[0].blocks[0];
        (block.state, block.stack)
    };
    assert_eq!(block(None), (BlockState::Free, StackId::NONE));
    assert_eq!(block(Some(Action::Alloc)), (BlockState::Allocated, StackId(2)));
}

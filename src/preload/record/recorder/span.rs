//! The span in which a context is recorded: from `begin` until the recording or the context ends.

use cachealloc_core::{Allocator, BlockState, BlockView};
use cachealloc_history::persistent::layout::{BlockRow, FREE, LIVE, OWNER_CONTEXT, PENDING};
use cachealloc_history::{Action, StackId};

use crate::lock::lock;
use crate::record::persistent;
use crate::record::persistent::HistorySource;
use crate::record::recorder::{
    Entries, Origin, Recorded, Recorder, entries_max, row_of, stream_of,
};
use crate::record::segments::Segments;

impl Recorder {
    /// Starts to record with no entries. Memory that the program already holds has no entry, and
    /// its free appears without an allocation. For `requested`, see `cut`.
    pub(crate) fn begin(
        &self,
        allocator: &mut Allocator,
        device: i32,
        requested: impl Fn(&BlockView) -> u64,
    ) {
        allocator.report_completed();
        let mut recorded = lock(&self.0);
        let before = recorded.entries.source.take();
        *recorded =
            Recorded::persistent(before.or_else(|| persistent::source(OWNER_CONTEXT, device)));
        for segment in allocator.segments() {
            recorded.segments.insert(row_of(&segment, StackId::NONE));
            recorded.note_pool(&segment);
            let stream = stream_of(segment.requester);
            for block in allocator.blocks(segment.id) {
                let requested_bytes = requested(&block);
                recorded.note_block(
                    block.block,
                    BlockRow {
                        address: block.address.0,
                        bytes: block.bytes,
                        requested_bytes,
                        stream,
                        stack: StackId::NONE,
                        state: match block.state {
                            BlockState::Allocated => LIVE,
                            BlockState::Free(ready) if ready.is_pending() => PENDING,
                            BlockState::Free(_) => FREE,
                        },
                    },
                );
                if block.state == BlockState::Allocated {
                    recorded.holders.allocated(StackId::NONE, requested_bytes);
                }
            }
        }
        allocator.take_completed();
        if let Some(source) = recorded.entries.source {
            source.set_on(true);
        }
    }

    /// Ends the recording and forgets everything.
    pub(crate) fn end(&self, allocator: &mut Allocator) {
        allocator.forget_completed();
        let mut recorded = lock(&self.0);
        let source = recorded.entries.source.inspect(|source| source.set_on(false));
        let entries = Entries { source, ..Entries::default() };
        *recorded = Recorded { entries, ..Recorded::default() };
    }

    /// Forgets the entries, and keeps the origin of live blocks. Blocks recorded already keep their
    /// entries as they are; new settings apply to later entries.
    pub(crate) fn forget_entries(&self, allocator: &mut Allocator) {
        let mut recorded = lock(&self.0);
        recorded.take_completed(allocator);
        recorded.entries.ring = Some(persistent::ring(recorded.entries.source, entries_max()));
    }

    /// Returns whether this context is recorded.
    pub(crate) fn is_on(&self) -> bool {
        lock(&self.0).on
    }

    /// Records that the context has ended with all its memory, which the driver freed. The entries
    /// are dated just before the driver was asked to end it: since then another context may have
    /// got the same addresses. For `caller`, see `segments_released`.
    pub(crate) fn context_ended(&self, allocator: &mut Allocator, at_ns: u64, caller: StackId) {
        let Some(mut recorded) = self.recorded() else { return };
        recorded.entries.at_ns = Some(at_ns);
        recorded.take_completed(allocator);
        let segments: Vec<_> = allocator.segments().collect();
        for segment in segments {
            for block in allocator.blocks(segment.id) {
                let (action, stack) = match block.state {
                    BlockState::Allocated => {
                        let Origin { stack, requested_bytes, .. } = recorded.origin(block.block);
                        recorded.holders.freed(stack, requested_bytes);
                        (Action::Free, caller)
                    }
                    BlockState::Free(ready) if ready.is_pending() => {
                        (Action::FreeCompleted, StackId::NONE)
                    }
                    BlockState::Free(_) => continue,
                };
                recorded.push_of_block(action, &block, stack);
                recorded.set_state(block.block, FREE);
            }
            let action =
                if segment.expandable { Action::SegmentUnmap } else { Action::SegmentFree };
            recorded.segment_ended(action, segment.base.0, segment.bytes, caller);
        }
        recorded.copy = None;
        recorded.blocks.clear();
        recorded.entries.at_ns = None;
    }
}

impl Recorded {
    /// Returns an empty record, in the persistent history if there is one.
    fn persistent(source: Option<HistorySource>) -> Recorded {
        Recorded {
            on: true,
            entries: Entries { source, ..Entries::default() },
            blocks: source.map(HistorySource::blocks).unwrap_or_default(),
            segments: source
                .map(|source| Segments::persistent(source.segments()))
                .unwrap_or_default(),
            ..Recorded::default()
        }
    }
}

//! The snapshot in PyTorch's schema: the only file that knows its keys and strings.
//!
//! Read by `torch.cuda.memory`'s tools, by <https://docs.pytorch.org/memory_viz> and by whatever
//! people wrote for it, so the schema is theirs, to the letter. In particular:
//!
//! * The frames of an entry are absent where there is none; those of blocks and segments are always
//!   a list. Never null.
//! * A free is two entries, one directly after the other.
//! * The state of a block that waits is `active_pending_free`, whatever the documentation says.
//! * `category`, `trace_alloc_*` and `cachealloc` are keys that PyTorch leaves to producers: the
//!   viewer colours by the first, and shows the others.
//!
//! In each dict the frames come last: they are what is large, and the keys before them can be read
//! in a dump of the file.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use crate::entry::{Action, Entry, StackId};
use crate::frames::{Describe, Frame, capped};
use crate::hash::BuildWordHasher;
use crate::pickle::{Pickle, Place, Word};
use crate::snapshot::{Block, BlockState, PoolKind, Segment, Snapshot};

/// Writes the snapshot as PyTorch's pickle. Does not check it: see [`Snapshot::check`].
pub fn write_snapshot(
    snapshot: &Snapshot,
    describe: &mut dyn Describe,
    output: impl Write,
) -> io::Result<()> {
    let mut writer = Writer {
        pickle: Pickle::begin(output)?,
        describe,
        snapshot,
        stacks: HashMap::default(),
        frames: HashMap::default(),
        equal_frames: HashMap::default(),
    };
    writer.top()?;
    writer.pickle.end()
}

struct Writer<'a, W> {
    pickle: Pickle<W>,
    describe: &'a mut dyn Describe,
    snapshot: &'a Snapshot,
    /// What is in the memo: stacks by id, frames by the address of their `Arc`, and by value.
    stacks: HashMap<StackId, Described, BuildWordHasher>,
    frames: HashMap<usize, Place, BuildWordHasher>,
    /// Keeps the frames alive whose addresses are in `frames`: no other frame may get one.
    equal_frames: HashMap<Arc<Frame>, Place, BuildWordHasher>,
}

#[derive(Clone)]
struct Described {
    frames: Option<Place>,
    category: Option<Arc<str>>,
}

/// Numbers the words from 0 in the order in which they stand, for their places in the memo.
macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { $($name,)* }
        $(const $name: Word = Word { place: Number::$name as u8, text: $text };)*
    };
}

words! {
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    HOST_SEGMENTS = "host_segments",
    HOST_TRACES = "host_traces",

    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    ALLOCATED_SIZE = "allocated_size",
    ACTIVE_SIZE = "active_size",
    REQUESTED_SIZE = "requested_size",
    STREAM = "stream",
    SEGMENT_TYPE = "segment_type",
    LARGE = "large",
    SMALL = "small",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    FRAMES = "frames",
    BLOCKS = "blocks",

    SIZE = "size",
    STATE = "state",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    INACTIVE = "inactive",

    ACTION = "action",
    ADDR = "addr",
    DEVICE_FREE = "device_free",
    TIME_US = "time_us",
    COMPILE_CONTEXT = "compile_context",
    NOT_AVAILABLE = "N/A",
    USER_METADATA = "user_metadata",
    EMPTY = "",
    POOL_ID = "pool_id",
    CATEGORY = "category",
    ALLOC = "alloc",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    OOM = "oom",
    SNAPSHOT = "snapshot",

    NAME = "name",
    FILENAME = "filename",
    LINE = "line",

    CONFIGURATION = "PYTORCH_CUDA_ALLOC_CONF",
    MAX_SPLIT_SIZE = "max_split_size",
    GARBAGE_COLLECTION_THRESHOLD = "garbage_collection_threshold",
    EXPANDABLE_SEGMENTS = "expandable_segments",
    PINNED_NUM_REGISTER_THREADS = "pinned_num_register_threads",
    RELEASE_LOCK_ON_CUDAMALLOC = "release_lock_on_cudamalloc",
    PINNED_USE_CUDA_HOST_REGISTER = "pinned_use_cuda_host_register",
    GRAPH_CAPTURE_RECORD_STREAM_REUSE = "graph_capture_record_stream_reuse",
    MAX_ROUND_THRESHOLD = "max_round_threshold",
    MAX_CACHED_SIZE = "max_cached_size",
    ROUNDUP_POWER2_DIVISIONS = "roundup_power2_divisions",
    TRACE_ALLOC_OVERFLOWED = "trace_alloc_overflowed",
    TRACE_ALLOC_MAX_ENTRIES = "trace_alloc_max_entries",
    TRACE_ALLOC_DROPPED = "trace_alloc_dropped",
    CACHEALLOC = "cachealloc",
}

impl<W: Write> Writer<'_, W> {
    fn top(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        self.pickle.begin_dict()?;
        self.pickle.word(ALLOCATOR_SETTINGS)?;
        self.settings()?;
        for key in [EXTERNAL_ANNOTATIONS, HOST_SEGMENTS, HOST_TRACES] {
            self.pickle.word(key)?;
            self.empty_list()?;
        }
        self.pickle.word(SEGMENTS)?;
        self.list(&snapshot.segments, Self::segment)?;
        self.pickle.word(DEVICE_TRACES)?;
        self.list(&snapshot.devices, |writer, device| {
            writer.list(device.entries.iter().flat_map(as_written), Self::entry)
        })?;
        self.pickle.end_dict()
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.number(DEVICE, u64::from(segment.device))?;
        self.number(ADDRESS, segment.address)?;
        self.number(TOTAL_SIZE, segment.bytes)?;
        self.number(ALLOCATED_SIZE, segment.allocated_bytes())?;
        self.number(ACTIVE_SIZE, segment.active_bytes())?;
        self.number(REQUESTED_SIZE, segment.requested_bytes())?;
        self.number(STREAM, segment.stream)?;
        self.pickle.word(SEGMENT_TYPE)?;
        self.pickle.word(match segment.kind {
            PoolKind::Large => LARGE,
            PoolKind::Small => SMALL,
        })?;
        self.pickle.word(SEGMENT_POOL_ID)?;
        self.pickle.pair(segment.pool_id)?;
        self.boolean(IS_EXPANDABLE, segment.expandable)?;
        self.pickle.word(BLOCKS)?;
        self.list(&segment.blocks, Self::block)?;
        self.frames_always(segment.stack)?;
        self.pickle.end_dict()
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.number(ADDRESS, block.address)?;
        self.number(SIZE, block.bytes)?;
        self.number(REQUESTED_SIZE, block.requested_bytes)?;
        self.pickle.word(STATE)?;
        self.pickle.word(match block.state {
            BlockState::ActiveAllocated => ACTIVE_ALLOCATED,
            BlockState::ActivePendingFree => ACTIVE_PENDING_FREE,
            BlockState::Inactive => INACTIVE,
        })?;
        self.frames_always(block.stack)?;
        self.pickle.end_dict()
    }

    fn entry(&mut self, entry: Entry) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.pickle.word(ACTION)?;
        self.pickle.word(action_word(entry.action))?;
        self.number(if entry.action == Action::Oom { DEVICE_FREE } else { ADDR }, entry.address)?;
        self.number(SIZE, entry.bytes)?;
        self.number(STREAM, entry.stream)?;
        self.number(TIME_US, self.snapshot.clock.epoch_us_of(entry.time_ns))?;
        self.pickle.word(COMPILE_CONTEXT)?;
        self.pickle.word(NOT_AVAILABLE)?;
        self.pickle.word(USER_METADATA)?;
        self.pickle.word(EMPTY)?;
        self.pickle.word(POOL_ID)?;
        self.pickle.pair(DEFAULT_POOL)?;
        if !entry.stack.is_none() {
            self.frames(entry.stack)?;
        }
        self.pickle.end_dict()
    }

    /// As a key of the dict that is open, whether there are any or not.
    fn frames_always(&mut self, stack: StackId) -> io::Result<()> {
        self.pickle.word(FRAMES)?;
        self.stack(stack)?;
        Ok(())
    }

    /// As keys of the dict that is open, with the category if there is one.
    fn frames(&mut self, stack: StackId) -> io::Result<()> {
        self.pickle.word(FRAMES)?;
        if let Some(category) = self.stack(stack)? {
            self.pickle.word(CATEGORY)?;
            self.pickle.text(&category)?;
        }
        Ok(())
    }

    /// The list of frames; in full for the first time. Answers the category.
    fn stack(&mut self, stack: StackId) -> io::Result<Option<Arc<str>>> {
        if stack.is_none() {
            self.empty_list()?;
            return Ok(None);
        }
        if let Some(described) = self.stacks.get(&stack).cloned() {
            match described.frames {
                Some(place) => self.pickle.get(place)?,
                None => self.empty_list()?,
            }
            return Ok(described.category);
        }
        let frames = self.describe.frames(stack);
        let category = self.describe.category(stack);
        let category: Option<Arc<str>> = (!category.is_empty()).then(|| capped(&category).into());
        let is_empty = frames.is_empty();
        self.list(frames, Self::frame)?;
        let place = if is_empty { None } else { Some(self.pickle.put()?) };
        self.stacks.insert(stack, Described { frames: place, category: category.clone() });
        Ok(category)
    }

    fn frame(&mut self, frame: Arc<Frame>) -> io::Result<()> {
        let address = Arc::as_ptr(&frame) as usize;
        let known = self.frames.get(&address).or_else(|| self.equal_frames.get(&frame));
        if let Some(&place) = known {
            return self.pickle.get(place);
        }
        self.pickle.begin_dict()?;
        self.pickle.word(NAME)?;
        self.pickle.text(&capped(&frame.name))?;
        self.pickle.word(FILENAME)?;
        self.pickle.text(&capped(&frame.filename))?;
        self.number(LINE, frame.line)?;
        self.pickle.end_dict()?;
        let place = self.pickle.put()?;
        self.frames.insert(address, place);
        self.equal_frames.insert(frame, place);
        Ok(())
    }

    fn settings(&mut self) -> io::Result<()> {
        let settings = &self.snapshot.settings;
        self.pickle.begin_dict()?;
        self.pickle.word(CONFIGURATION)?;
        self.pickle.text(&settings.configuration)?;
        self.pickle.word(MAX_SPLIT_SIZE)?;
        match settings.split_bytes_max {
            Some(bytes) => self.pickle.integer(bytes)?,
            None => self.pickle.minus_one()?,
        }
        self.pickle.word(GARBAGE_COLLECTION_THRESHOLD)?;
        self.pickle.float(settings.garbage_collection_threshold)?;
        self.boolean(EXPANDABLE_SEGMENTS, settings.expandable_segments)?;
        self.settings_that_we_lack()?;
        let dropped_count = self.snapshot.dropped_count();
        self.boolean(TRACE_ALLOC_OVERFLOWED, dropped_count > 0)?;
        self.number(TRACE_ALLOC_MAX_ENTRIES, settings.entries_max)?;
        self.number(TRACE_ALLOC_DROPPED, dropped_count)?;
        self.pickle.word(CACHEALLOC)?;
        let mut more = self.pickle.begin_large_dict()?;
        for (name, value) in &settings.more {
            more.item(&mut self.pickle)?;
            self.pickle.text(name)?;
            self.pickle.text(value)?;
        }
        more.end(&mut self.pickle)?;
        self.pickle.end_dict()
    }

    /// With the values that they have in PyTorch by default: readers expect the keys.
    fn settings_that_we_lack(&mut self) -> io::Result<()> {
        self.number(PINNED_NUM_REGISTER_THREADS, 1)?;
        self.boolean(RELEASE_LOCK_ON_CUDAMALLOC, false)?;
        self.boolean(PINNED_USE_CUDA_HOST_REGISTER, false)?;
        self.boolean(GRAPH_CAPTURE_RECORD_STREAM_REUSE, false)?;
        self.number(MAX_ROUND_THRESHOLD, 0)?;
        self.number(MAX_CACHED_SIZE, 0)?;
        self.pickle.word(ROUNDUP_POWER2_DIVISIONS)?;
        self.pickle.begin_dict()?;
        for power in 0..16 {
            self.pickle.text(&(1u32 << power).to_string())?;
            self.pickle.integer(0)?;
        }
        self.pickle.end_dict()
    }

    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut batch = self.pickle.begin_list()?;
        for item in items {
            batch.item(&mut self.pickle)?;
            write(self, item)?;
        }
        batch.end(&mut self.pickle)
    }

    fn empty_list(&mut self) -> io::Result<()> {
        self.list([], |_, ()| Ok(()))
    }

    fn number(&mut self, key: Word, number: u64) -> io::Result<()> {
        self.pickle.word(key)?;
        self.pickle.integer(number)
    }

    fn boolean(&mut self, key: Word, yes: bool) -> io::Result<()> {
        self.pickle.word(key)?;
        self.pickle.boolean(yes)
    }
}

/// The pool of an entry is not recorded, and no tool asks for it.
const DEFAULT_POOL: (u64, u64) = (0, 0);

/// A free is one entry in the ring and two in the file.
fn as_written(entry: &Entry) -> impl Iterator<Item = Entry> + use<> {
    let entry = *entry;
    let (first, second) = match entry.action {
        Action::Free => (Action::FreeRequested, Some(Action::FreeCompleted)),
        action => (action, None),
    };
    [Some(first), second].into_iter().flatten().map(move |action| Entry { action, ..entry })
}

fn action_word(action: Action) -> Word {
    match action {
        Action::Alloc => ALLOC,
        Action::FreeRequested | Action::Free => FREE_REQUESTED,
        Action::FreeCompleted => FREE_COMPLETED,
        Action::SegmentAlloc => SEGMENT_ALLOC,
        Action::SegmentFree => SEGMENT_FREE,
        Action::SegmentMap => SEGMENT_MAP,
        Action::SegmentUnmap => SEGMENT_UNMAP,
        Action::Oom => OOM,
        Action::Snapshot => SNAPSHOT,
    }
}

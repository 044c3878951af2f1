//! The snapshot in PyTorch's schema: the only module that knows its keys and strings.
//!
//! The readers are `torch.cuda.memory`'s tools, <https://docs.pytorch.org/memory_viz> and other
//! people's tools for that format, so the schema follows theirs exactly. In particular:
//!
//! * An entry without frames has no key for them; blocks and segments always have a list. It is
//!   never
//!   null.
//! * A free is two entries, one directly after the other.
//! * The state of a block that is pending free is `active_pending_free`, whatever PyTorch's
//!   documentation says.
//! * `category`, `trace_alloc_*` and `cachealloc` are keys that PyTorch leaves to producers: the
//!   viewer
//!   colours by the first, and shows the others.
//! * If there are categories, one must be `unknown`. Otherwise the viewer tries to add it to a list
//!   whose
//!   name it misspells (`categores`), and shows nothing.
//! * The viewer takes a block's category from its entry alone. If only live blocks were recorded,
//!   entries
//!   have no categories: nearly all would be `unknown`. Blocks always have theirs, for cachealloc's
//!   own tools.
//!
//! * `graph_segments` is a key of cachealloc for graphs that have memory nodes. It has the form of
//!   `segments`; each segment is one node, and its pool is the number of its graph. They are not
//!   among the other segments: their addresses have no memory before a launch and graphs may share
//!   it, so their sum is not reserved memory.
//!
//! In each dict the frames come last: they are large, and the keys before them can then be read in
//! a dump of the file.

use std::collections::HashMap;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use crate::entry::{Action, Entry, NO_RANGE, StackId};
use crate::frames::{Describe, Frame, capped};
use crate::hash::BuildWordHasher;
use crate::pickle::{MemoIndex, Pickle, Word};
use crate::snapshot::{Block, BlockState, HOST_DEVICE, PoolKind, Segment, Snapshot};
use crate::{action_words, state_words};
use annotations::{Annotations, Event};
use pools::Pools;
use words::*;

mod annotations;
mod pools;
mod settings;
mod words;

/// Writes the snapshot as PyTorch's pickle. Does not check it; see [`Snapshot::check`].
pub fn write_snapshot(
    snapshot: &Snapshot,
    describe: &mut dyn Describe,
    output: impl Write,
) -> io::Result<()> {
    let mut writer = Writer {
        pickle: Pickle::begin(output)?,
        describe,
        snapshot,
        pools: Pools::of_segments(&snapshot.segments),
        annotations: Annotations::of(snapshot),
        stacks: HashMap::default(),
        frames: HashMap::default(),
        equal_frames: HashMap::default(),
        categories: if has_history(snapshot) { Categories::None } else { Categories::Never },
    };
    writer.top()?;
    writer.pickle.end()
}

/// Returns whether the snapshot has more than a last entry.
fn has_history(snapshot: &Snapshot) -> bool {
    let more = |device: &crate::Device| device.recorded_from_start || device.entries.len() > 1;
    snapshot.devices.iter().any(more)
}

struct Writer<'a, W> {
    pickle: Pickle<W>,
    describe: &'a mut dyn Describe,
    snapshot: &'a Snapshot,
    pools: Pools,
    annotations: Annotations,
    /// Objects in the memo: stacks by id, frames by the address of their `Arc`, and by value.
    stacks: HashMap<StackId, Described, BuildWordHasher>,
    frames: HashMap<usize, MemoIndex, BuildWordHasher>,
    /// Keeps alive the frames whose addresses are in `frames`, so that no other frame gets one of
    /// them.
    equal_frames: HashMap<Arc<Frame>, MemoIndex, BuildWordHasher>,
    categories: Categories,
}

/// Categories that the entries have had so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Categories {
    Never,
    None,
    Known,
    KnownAndUnknown,
}

#[derive(Clone)]
struct Described {
    frames: Option<MemoIndex>,
    category: Option<Arc<str>>,
}

impl<W: Write> Writer<'_, W> {
    fn top(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        self.pickle.begin_dict()?;
        self.pickle.word(ALLOCATOR_SETTINGS)?;
        self.settings()?;
        self.pickle.word(EXTERNAL_ANNOTATIONS)?;
        let annotations = mem::take(&mut self.annotations);
        self.list(&annotations.events, |writer, event| {
            writer.annotation(annotations.name(event), event)
        })?;
        self.pickle.word(SEGMENTS)?;
        self.list(&snapshot.segments, Self::segment)?;
        self.pickle.word(DEVICE_TRACES)?;
        let mut devices_left = snapshot.devices.len();
        self.list((0..).zip(&snapshot.devices), |writer, (number, device)| {
            devices_left -= 1;
            writer.entries(number, &device.entries, devices_left == 0)
        })?;
        // These follow the traces of devices: the viewer looks for categories in those alone.
        self.pickle.word(HOST_SEGMENTS)?;
        self.list(&snapshot.host_segments, Self::segment)?;
        self.pickle.word(HOST_TRACES)?;
        self.entries(HOST_DEVICE, &snapshot.host.entries, false)?;
        if !snapshot.graph_segments.is_empty() {
            self.pickle.word(GRAPH_SEGMENTS)?;
            self.list(&snapshot.graph_segments, Self::segment)?;
        }
        self.pickle.end_dict()
    }

    fn annotation(&mut self, name: &str, event: &Event) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.pickle.word(NAME)?;
        self.pickle.text(&capped(name))?;
        self.pickle.word(STAGE)?;
        self.pickle.word(if event.begins { START } else { END })?;
        self.number(DEVICE, event.device.into())?;
        self.number(TIME_US, self.snapshot.clock.epoch_us_of(event.time_ns))?;
        self.pickle.end_dict()
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        self.pickle.begin_dict()?;
        match segment.device {
            HOST_DEVICE => {
                self.pickle.word(DEVICE)?;
                self.pickle.minus_one()?;
            }
            ordinal => self.number(DEVICE, u64::from(ordinal))?,
        }
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
        self.pickle.word(state_word(block.state))?;
        let category = self.frames_always(block.stack)?;
        if let Some(category) = category.filter(|category| **category != *UNKNOWN.text) {
            self.pickle.word(CATEGORY)?;
            self.pickle.text(&category)?;
        }
        self.pickle.end_dict()
    }

    fn entries(&mut self, device: u32, entries: &[Entry], last_device: bool) -> io::Result<()> {
        let mut batch = self.pickle.begin_list()?;
        for entry in entries.iter().flat_map(as_written) {
            batch.item(&mut self.pickle)?;
            self.entry(device, entry)?;
        }
        if last_device && self.categories == Categories::Known {
            batch.item(&mut self.pickle)?;
            self.entry(device, self.snapshot_entry(entries))?;
        }
        batch.end(&mut self.pickle)
    }

    /// Returns an entry that shows nothing, for the category that must be present.
    fn snapshot_entry(&self, entries: &[Entry]) -> Entry {
        let active = self.snapshot.segments.iter().map(Segment::active_bytes);
        Entry {
            time_ns: entries.last().map_or(self.snapshot.clock.time_ns, |entry| entry.time_ns),
            address: 0,
            bytes: active.sum(),
            stream: 0,
            stack: StackId::NONE,
            action: Action::Snapshot,
            entered: 0,
            range: NO_RANGE,
        }
    }

    fn entry(&mut self, device: u32, entry: Entry) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.pickle.word(ACTION)?;
        self.pickle.word(action_word(entry.action))?;
        self.number(
            if entry.action == Action::OutOfMemory { DEVICE_FREE } else { ADDR },
            entry.address,
        )?;
        self.number(SIZE, entry.bytes)?;
        self.number(STREAM, entry.stream)?;
        self.number(TIME_US, self.snapshot.clock.epoch_us_of(entry.time_ns))?;
        self.pickle.word(COMPILE_CONTEXT)?;
        self.pickle.word(NOT_AVAILABLE)?;
        self.pickle.word(USER_METADATA)?;
        match self.snapshot.ranges.get(usize::from(entry.range)) {
            Some(range) if !range.is_empty() => self.pickle.text(&capped(range))?,
            _ => self.pickle.word(EMPTY)?,
        }
        if entry.entered > 0 {
            self.number(RANGE_ENTERED, entry.entered.into())?;
        }
        self.pickle.word(POOL_ID)?;
        self.pickle.pair(self.pools.of(device, &entry))?;
        let mut category = None;
        if !entry.stack.is_none() {
            self.pickle.word(FRAMES)?;
            category = self.stack(entry.stack)?;
        }
        self.category(entry.action, category.as_deref())?;
        self.pickle.end_dict()
    }

    fn category(&mut self, action: Action, category: Option<&str>) -> io::Result<()> {
        // The viewer merges the two entries of a free, and uses the category of the first.
        if action == Action::FreeCompleted || self.categories == Categories::Never {
            return Ok(());
        }
        let is_unknown = category.is_none_or(|category| category == UNKNOWN.text);
        self.categories = match (self.categories, is_unknown) {
            (Categories::None, true) => return Ok(()),
            (Categories::None, false) => Categories::Known,
            (Categories::Known, true) => Categories::KnownAndUnknown,
            (categories, _) => categories,
        };
        self.pickle.word(CATEGORY)?;
        match category {
            Some(category) if !is_unknown => self.pickle.text(category),
            _ => self.pickle.word(UNKNOWN),
        }
    }

    /// Writes the frames as a key of the open dict, even if there are none. Returns the category.
    fn frames_always(&mut self, stack: StackId) -> io::Result<Option<Arc<str>>> {
        self.pickle.word(FRAMES)?;
        self.stack(stack)
    }

    /// Writes the list of frames, in full only the first time. Returns the category.
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

/// Returns the entries as written: a free is one entry in the ring and two in the file.
fn as_written(entry: &Entry) -> impl Iterator<Item = Entry> + use<> {
    let entry = *entry;
    let (first, second) = match entry.action {
        Action::Free => (Action::FreeRequested, Some(Action::FreeCompleted)),
        action => (action, None),
    };
    let second = second.map(|action| Entry { action, entered: 0, ..entry });
    [Some(Entry { action: first, ..entry }), second].into_iter().flatten()
}

fn action_word(action: Action) -> Word {
    macro_rules! choose {
        ($($name:ident = $word:ident,)*) => {
            match action {
                $(Action::$name => $word,)*
                Action::Free => FREE_REQUESTED,
            }
        };
    }
    action_words!(choose)
}

fn state_word(state: BlockState) -> Word {
    macro_rules! choose {
        ($($name:ident = $word:ident,)*) => {
            match state {
                $(BlockState::$name => $word,)*
            }
        };
    }
    state_words!(choose)
}

//! The snapshot in PyTorch's schema: the only module that knows its keys and strings.
//!
//! The readers are `torch.cuda.memory`'s tools, <https://docs.pytorch.org/memory_viz> and other
//! people's tools for that format, so the schema follows theirs exactly. In particular:
//!
//! * An entry without frames has no key for them; blocks and segments always have a list. It is
//!   never null.
//! * A free is two entries, one directly after the other.
//! * The state of a block that is pending free is `active_pending_free`, whatever PyTorch's
//!   documentation says.
//! * `category`, `trace_alloc_*` and `cachealloc` are keys that PyTorch leaves to producers: the
//!   viewer colours by the first, and shows the others.
//! * A snapshot without segments and entries has an entry that a snapshot was taken: the viewer
//!   fails if it finds no device. That of PyTorch fails with PyTorch's own snapshots, too.
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

use crate::entry::{Action, Entry, StackId};
use crate::frames::{Describe, Frame, capped};
use crate::hash::BuildWordHasher;
use crate::pickle::{MemoIndex, Pickle, Word};
use crate::snapshot::{
    Block, BlockState, Device, EntryList, HOST_DEVICE, PoolKind, Segment, Snapshot,
};
use crate::{action_words, state_words};
use annotations::{Annotations, Event};
use categories::Categories;
use pools::Pools;
use words::*;

mod annotations;
mod categories;
mod pools;
mod settings;
mod words;

/// Writes the snapshot as PyTorch's pickle. Does not check it; see [`Snapshot::check`].
pub fn write_snapshot<E: EntryList>(
    snapshot: &Snapshot<E>,
    describe: &mut dyn Describe,
    output: impl Write,
) -> io::Result<()> {
    let mut writer = Writer {
        pickle: Pickle::begin(output)?,
        categories: Categories::of(snapshot, describe),
        describe,
        snapshot,
        pools: Pools::of_segments(&snapshot.segments),
        annotations: Annotations::of(snapshot),
        stacks: HashMap::default(),
        frames: HashMap::default(),
        equal_frames: HashMap::default(),
    };
    writer.top()?;
    writer.pickle.end()
}

struct Writer<'a, W, E> {
    pickle: Pickle<W>,
    describe: &'a mut dyn Describe,
    snapshot: &'a Snapshot<E>,
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

#[derive(Clone)]
struct Described {
    frames: Option<MemoIndex>,
    category: Option<Arc<str>>,
}

impl<W: Write, E: EntryList> Writer<'_, W, E> {
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
        if is_empty(snapshot) {
            let taken = self.snapshot_taken();
            self.list([taken], |writer, taken| writer.entries(0, &vec![taken]))?;
        } else {
            self.list((0..).zip(&snapshot.devices), |writer, (number, device)| {
                writer.entries(number, &device.entries)
            })?;
        }
        self.pickle.word(HOST_SEGMENTS)?;
        self.list(&snapshot.host_segments, Self::segment)?;
        self.pickle.word(HOST_TRACES)?;
        self.entries(HOST_DEVICE, &snapshot.host.entries)?;
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
        if let Some(category) = category {
            self.pickle.word(CATEGORY)?;
            self.pickle.text(&category)?;
        }
        self.pickle.end_dict()
    }

    fn entries(&mut self, device: u32, entries: &impl EntryList) -> io::Result<()> {
        let mut batch = self.pickle.begin_list()?;
        for (index, entry) in entries.each().enumerate() {
            for entry in as_written(entry) {
                batch.item(&mut self.pickle)?;
                self.entry((device, index), entry)?;
            }
        }
        batch.end(&mut self.pickle)
    }

    /// The only entry of a history that consists of this snapshot.
    fn snapshot_taken(&self) -> Entry {
        let time_ns = self.snapshot.clock.time_ns;
        Entry { time_ns, action: Action::Snapshot, ..Entry::default() }
    }

    /// Writes an entry, or one of the two of a free. `place`: its device and its index there.
    fn entry(&mut self, place: (u32, usize), entry: Entry) -> io::Result<()> {
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
        self.pickle.pair(self.pools.of(place.0, &entry))?;
        let mut category = None;
        if !entry.stack.is_none() {
            self.pickle.word(FRAMES)?;
            category = self.stack(entry.stack)?;
        }
        if let Some(category) = self.categories.of_entry(place, entry.action, category) {
            self.pickle.word(CATEGORY)?;
            self.pickle.text(&category)?;
        }
        self.pickle.end_dict()
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
        let category = self.categories.of_stack(stack, self.describe);
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

/// Returns whether the viewer would find no device.
fn is_empty<E: EntryList>(snapshot: &Snapshot<E>) -> bool {
    let has_entries = |device: &Device<E>| device.entries.count() > 0;
    snapshot.segments.is_empty() && !snapshot.devices.iter().any(has_entries)
}

/// Returns the entries as written: a free is one entry in the ring and two in the file.
fn as_written(entry: Entry) -> impl Iterator<Item = Entry> {
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

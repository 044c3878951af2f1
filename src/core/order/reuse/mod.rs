//! Reuse of memory inside one capture: when may a freed block be handed out again, so that in no
//! replay of the graph its new user overlaps an old one?
//!
//! A capture runs nothing, so no event can show that. The graph, however, shows what comes before
//! what. When a block is freed, *markers* are recorded: nodes such that all its users are complete
//! when they are. The block may be reused where every marker is complete before anything captured
//! from now on starts: on one stream, if that holds after this stream's terminals; anywhere, if it
//! holds after those of every stream of the capture. Terminals are what the next node of a stream
//! depends on (`cuStreamGetCaptureInfo`); it depends on all of them, so one of them after a marker
//! is enough.
//!
//! * U1: the markers of a free are all terminals of the stream that it was made on; of every
//!   stream, where it was made on none (`cuMemFree`). Those captured before the block was handed
//!   out are left out.
//! * U2: every loose node before them is a marker too (`reach`): it may still run when the next
//!   node is complete.
//! * U3: all terminals that a stream has dropped, or had when it left, are markers of a free on no
//!   stream.
//! * U4: a block that was handed out in the order of a stream has the terminals of that stream at
//!   that moment as markers too: they are after its earlier users, wherever it is freed.
//! * U5: what was proven for a stream stays true when its terminals are set elsewhere; what was
//!   proven for every stream, for those that join later, from an event recorded before the free:
//!   `Look::edge_update`.
//! * U6: a marker that is a terminal itself is complete for the next node unless that starts early.
//! * U7: in an opaque capture nothing is reused. What was handed out before stays proven (U5).
//! * U8: a stream whose terminals are all complete for an older stream of the capture, which the
//!   block is proven for, has been joined. The block need not be proven for it: its edges are
//!   updated (U5). Otherwise a side stream that was joined would keep its last terminal, and with
//!   it all blocks, to the end. A stream that has only waited so far (`Look::waited`) does not
//!   count as joined: a branch is about to begin there, which would lose its place beside the
//!   others.
//!
//! A block that cannot be proven waits for the end of the capture. Nothing here adds a node: an
//! empty node on a stream that was joined before would be an unjoined branch, and EndCapture fails.
//!
//! The runtime does the following, one thread at a time for each capture. A *look* shows all
//! streams of the capture, in the order they joined; `ready` returns blocks; and what `edge_update`
//! returns for every stream is done before the next call of the program ("update all"):
//!
//! ```text
//! look       look = reuse.look(); look.stream(..) for all
//! allocate   look; look.ready(): these blocks are free, for one stream or for all; update all;
//!            look.allocation_point(stream that the block was free for, or None), kept with it
//! free       look; look.freed(block, ..)
//! a stream waits for a captured event, or its terminals are set
//!            look before and after; look.waited(stream) if it waited; update all
//! a stream is destroyed
//!            look before; reuse.leaves(stream)
//! nodes or edges added or removed by hand, conditional nodes, an error of the driver
//!            reuse.becomes_opaque(), and go on looking and updating
//! the end    drop it: the waiting blocks have waited for that
//! ```

mod add_edges;
mod markers;
mod nodes;
mod reach;
mod waiting;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

pub use add_edges::EdgeUpdate;
use markers::Markers;
pub use markers::{AllocationPoint, MARKERS_COUNT_MAX};
pub use nodes::{Edge, EdgeKind, NODES_COUNT_MAX, Node};
use nodes::{Nodes, NotKnown};
use reach::{Advance, Reach};
use waiting::WaitingBlocks;

use crate::rules::{Rule, rule_holds};
use crate::types::BlockId;

/// The reuse state of one capture.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    nodes: Nodes,
    /// The streams, in the order they became part of the capture.
    streams: Vec<Stream>,
    /// Terminals that no stream has any more (U3).
    dropped: Reach,
    /// Markers that were proven for every stream (U5).
    proven: Reach,
    waiting: WaitingBlocks,
    opaque: bool,
    /// The graph cannot be searched: the driver does not report it, or it is too large. Opaque as
    /// well.
    blind: bool,
    looks_count: u64,
}

#[derive(Clone, Debug)]
struct Stream {
    id: u64,
    /// The terminals as last shown.
    terminals: Vec<Edge>,
    reach: Reach,
    /// Markers that were proven for this stream (U5).
    proven: Reach,
    /// Blocks to check again when a node is complete for this stream.
    watched: BTreeMap<u32, BTreeSet<BlockId>>,
    /// Blocks to check again when it captures something.
    watched_branch: BTreeSet<BlockId>,
    /// A stream has waited, and captured nothing since, if all its terminals have smaller numbers
    /// (U8).
    branch_from: u32,
    /// The last look in which it was shown.
    shown: u64,
}

/// The scope of a free or of a reuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// In the order of one stream, by `cuStreamGetId`.
    Stream(u64),
    /// On no stream: everything captured before the free comes before everything captured after it.
    Everywhere,
}

/// The capture at one moment.
#[derive(Debug)]
pub struct Look<'a> {
    reuse: &'a mut Reuse,
}

impl Reuse {
    /// Returns the state of a capture that has just begun.
    pub fn new() -> Reuse {
        Reuse::default()
    }

    /// Begins a look at the capture as it is now.
    pub fn look(&mut self) -> Look<'_> {
        self.looks_count += 1;
        Look { reuse: self }
    }

    /// Records that there may be nodes that no stream's terminals follow, or unknown edges (U7).
    pub fn becomes_opaque(&mut self) {
        self.opaque = rule_holds(Rule::CaptureOpaqueWaits);
    }

    /// Returns whether nothing is reused any more. Streams must still be shown and updated: blocks
    /// handed out before have to stay valid.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// Returns whether any block was reused: only then may a stream need an edge update.
    pub fn has_reused(&self) -> bool {
        let proven = |reach: &Reach| reach.terminals().next().is_some();
        proven(&self.proven) || self.streams.iter().any(|stream| proven(&stream.proven))
    }

    /// Returns the number of freed blocks that wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting.count()
    }

    /// Removes a stream from the capture. It was shown just before. `ask` is described at
    /// `Look::stream`.
    pub fn leaves(&mut self, stream_id: u64, mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool) {
        if let Some(index) = self.streams.iter().position(|stream| stream.id == stream_id) {
            let stream = self.streams.remove(index);
            let terminals: Vec<u32> = stream.reach.terminals().collect();
            self.drop_terminals(&terminals, &mut ask);
            let watched = stream.watched.into_values().flatten();
            self.waiting.ask_again(watched.chain(stream.watched_branch));
        }
    }

    fn drop_terminals(
        &mut self,
        terminals: &[u32],
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) {
        for number in terminals {
            if self.dropped.add(&mut self.nodes, *number, ask).is_err() {
                self.becomes_blind();
            }
        }
    }

    fn becomes_blind(&mut self) {
        self.blind = true;
        self.opaque = true;
    }

    /// Returns whether the current look shows the whole capture.
    fn is_whole(&self) -> bool {
        let whole = self.streams.iter().all(|stream| stream.shown == self.looks_count);
        whole && !self.opaque
    }

    fn find(&self, stream_id: u64) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.id == stream_id)
    }

    fn scoped(&self, scope: Scope) -> impl Iterator<Item = &Stream> + Clone {
        self.streams.iter().filter(move |stream| match scope {
            Scope::Stream(id) => stream.id == id,
            Scope::Everywhere => true,
        })
    }
}

impl Look<'_> {
    /// Shows a stream: its terminals now, with what their edges promise. `ask` appends the edges
    /// into a node. It returns `false` if the driver does not report them, which makes the capture
    /// opaque.
    pub fn stream(
        &mut self,
        stream_id: u64,
        terminals: &[Edge],
        mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) {
        let reuse = &mut *self.reuse;
        let known = reuse.streams.iter().position(|stream| stream.id == stream_id);
        let index = known.unwrap_or_else(|| {
            reuse.streams.push(Stream::new(stream_id));
            reuse.streams.len() - 1
        });
        let stream = &mut reuse.streams[index];
        stream.shown = reuse.looks_count;
        stream.terminals.clear();
        stream.terminals.extend_from_slice(terminals);
        if reuse.blind {
            return;
        }
        let before: Vec<u32> = stream.reach.terminals().collect();
        let advance = stream.reach.advance(&mut reuse.nodes, terminals, &mut ask);
        // It joined the capture by a wait. The first stream did not, but none is older (U8).
        if known.is_none() {
            stream.branch_from = reuse.nodes.count();
        }
        match advance {
            Ok(Advance::Forward) => {}
            Ok(Advance::Elsewhere) => reuse.drop_terminals(&before, &mut ask),
            Err(NotKnown) => reuse.becomes_blind(),
        }
    }

    /// Records that this stream has just waited for an event: its next node begins a separate
    /// branch. A stream shown for the first time need not be passed.
    pub fn waited(&mut self, stream_id: u64) {
        let count = self.reuse.nodes.count();
        let mut streams = self.reuse.streams.iter_mut();
        if let Some(stream) = streams.find(|stream| stream.id == stream_id) {
            stream.branch_from = count;
        }
    }

    /// Returns the state to remember for a block that is allocated now. `free_for` is the stream in
    /// whose order it was free; `None` if it was free for any request, or is fresh memory.
    pub fn allocation_point(&self, free_for: Option<u64>) -> AllocationPoint {
        let reuse = &*self.reuse;
        if !reuse.is_whole() {
            return AllocationPoint { nodes_count: 0, earlier: Markers::unknown() };
        }
        let mut earlier = Markers::none();
        if let Some(stream) = free_for.filter(|_| rule_holds(Rule::CaptureReuseIsMarked)) {
            // A stream that has left cannot have requested a block.
            let stream = reuse.find(stream);
            earlier =
                stream.map_or(Markers::unknown(), |stream| stream.reach.terminals().collect());
        }
        AllocationPoint { nodes_count: reuse.nodes.count(), earlier }
    }

    /// Records a freed block, which waits. `home` is a stream that may reuse it before others.
    pub fn freed(
        &mut self,
        block: BlockId,
        point: &AllocationPoint,
        scope: Scope,
        home: Option<u64>,
    ) {
        let markers = self.markers(point, scope);
        let freed_on = match scope {
            Scope::Stream(id) => Some(id),
            Scope::Everywhere => None,
        };
        if !markers.is_unknown() {
            self.reuse.waiting.insert(block, markers, [freed_on, home]);
        }
    }

    fn markers(&self, point: &AllocationPoint, scope: Scope) -> Markers {
        let reuse = &*self.reuse;
        let mut streams = reuse.scoped(scope).peekable();
        if !reuse.is_whole() || streams.peek().is_none() {
            return Markers::unknown();
        }
        let mut markers = point.earlier.clone();
        if !rule_holds(Rule::CaptureFreeMarks) {
            return markers;
        }
        for stream in streams {
            markers.note(&stream.reach, point.nodes_count);
            if scope == Scope::Everywhere && !rule_holds(Rule::CaptureFreeMarksEveryStream) {
                break;
            }
        }
        if scope == Scope::Everywhere && rule_holds(Rule::CaptureDroppedNodesMark) {
            markers.note(&reuse.dropped, point.nodes_count);
        }
        markers
    }
}

impl Stream {
    fn new(id: u64) -> Stream {
        Stream {
            id,
            terminals: Vec::new(),
            reach: Reach::default(),
            proven: Reach::default(),
            watched: BTreeMap::new(),
            watched_branch: BTreeSet::new(),
            branch_from: 0,
            shown: 0,
        }
    }
}

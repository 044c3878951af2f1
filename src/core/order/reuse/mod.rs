//! Reuse of memory inside one capture: when may a block that was freed be handed out again, so that
//! no replay of the graph lets its new user meet an old one?
//!
//! A capture runs nothing, so no event can tell. But the graph says what comes before what. When a
//! block is freed, *markers* are noted: nodes such that all its users are complete when they are.
//! It may be used again where every marker is complete before anything captured from now on starts:
//! on one stream, if that is so behind this stream's terminals; anywhere, if it is so behind those
//! of every stream of the capture. Terminals are what the next node of a stream hangs on
//! (`cuStreamGetCaptureInfo`); it hangs on all of them, so one of them behind a marker is enough.
//!
//! * U1: the markers of a free are all terminals of the stream that it was made on; of every stream,
//!   where it was made on none (`cuMemFree`). Not those captured before the block was handed out.
//! * U2: and every loose node behind them (`reach`): the next node is complete, it may still run.
//! * U3: and all terminals that a stream has dropped, or had when it left, where it was made on none.
//! * U4: a block that was handed out again has the terminals of its stream at that moment as markers
//!   too: they are behind its earlier users, while the stream may be set elsewhere before the free.
//! * U5: what was proven for every stream is made true for those that come later, from an event
//!   recorded before the free, and for those that are set elsewhere: `Look::mend`.
//! * U6: a marker that is a terminal itself is complete for the next node unless that starts early.
//! * U7: in an opaque capture nothing is reused.
//! * U8: a stream whose terminals are all complete for an older stream of the capture, which the
//!   block is proven for, has been joined. It need not be proven for, it is mended (U5). Otherwise a
//!   side stream that was joined would keep its last terminal, and with it all blocks, to the end.
//!
//! What cannot be proven waits for the end of the capture. Nothing here adds a node: an empty node
//! on a stream that was joined before would be a branch that nobody joins, and EndCapture fails.
//!
//! What the runtime does, one thread at a time for each capture:
//!
//! ```text
//! allocate   look = reuse.look(); look.stream(..) for the stream; for a block for anyone, of all
//!            a free block: look.reusable(markers, scope), then birth = look.born(markers, scope)
//!                          a stream: UnlessEarly: its next launch is made in full order
//!                          anyone: look.mend(stream) of all, and do what it says
//!            fresh memory: birth = look.fresh()
//! free       look as above; look.freed(birth, scope) -> markers, kept with the block
//! a stream joins, or its terminals are set
//!            before setting: look.stream(..)
//!            after: look.stream(..), look.mend(stream), and do what it says
//! a stream is destroyed
//!            before: look.stream(..); after: reuse.leaves(stream)
//! nodes or edges added or removed by hand, conditional nodes, an error of the driver
//!            reuse.turns_opaque()
//! the end    drop it; all markers are meaningless then
//! ```

mod markers;
mod nodes;
mod reach;

use alloc::vec::Vec;

pub use markers::{Birth, MARKERS_COUNT_MAX, Markers, Reusable};
pub use nodes::{Edge, EdgeKind, NODES_COUNT_MAX, Node};
use nodes::{Nodes, NotKnown};
use reach::{Advance, Reach};

use crate::rules::{Rule, rule_holds};

/// One capture.
#[derive(Debug, Default)]
pub struct Reuse {
    nodes: Nodes,
    /// In the order in which they became part of the capture.
    streams: Vec<Stream>,
    /// Terminals that no stream has any more (U3).
    dropped: Reach,
    /// Markers that were proven for every stream (U5).
    proven: Reach,
    opaque: bool,
    looks_count: u64,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    reach: Reach,
    /// The last look in which it was shown.
    shown: u64,
}

/// Where a free happens, or a block is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// In the order of one stream, by `cuStreamGetId`.
    Stream(u64),
    /// On no stream: what was captured before the free comes before what is captured after it.
    Everywhere,
}

/// What is to be done to a stream so that all that was proven for every stream holds for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mend {
    /// Nothing.
    Nothing,
    /// Its next node does not start early.
    FullOrder,
    /// Its terminals are set to these, and its next node does not start early.
    Set(Vec<Edge>),
}

/// The capture at one moment. All streams that a question is about have to be shown first.
#[derive(Debug)]
pub struct Look<'a> {
    reuse: &'a mut Reuse,
}

impl Reuse {
    /// A capture that has just begun.
    pub fn new() -> Reuse {
        Reuse::default()
    }

    /// Begins a look at the capture as it is now.
    pub fn look(&mut self) -> Look<'_> {
        self.looks_count += 1;
        Look { reuse: self }
    }

    /// There may be nodes behind no stream's terminals, or edges that we do not know (U7).
    pub fn turns_opaque(&mut self) {
        self.opaque = rule_holds(Rule::CaptureOpaqueWaits);
    }

    /// Whether nothing is reused any more.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// The stream is no part of the capture any more. It was shown just before. `ask` is as in
    /// `Look::stream`.
    pub fn leaves(&mut self, stream_id: u64, mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool) {
        if let Some(index) = self.streams.iter().position(|stream| stream.id == stream_id) {
            let stream = self.streams.remove(index);
            let terminals: Vec<u32> = stream.reach.terminals().collect();
            self.drop_terminals(&terminals, &mut ask);
        }
    }

    fn drop_terminals(
        &mut self,
        terminals: &[u32],
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) {
        for number in terminals {
            if self.dropped.add(&mut self.nodes, *number, ask).is_err() {
                self.opaque = true;
            }
        }
    }
}

impl Look<'_> {
    /// Shows a stream: its terminals now, with what their edges promise. `ask` appends the edges
    /// into a node; false if the driver will not say, which makes the capture opaque.
    pub fn stream(
        &mut self,
        stream_id: u64,
        terminals: &[Edge],
        mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) {
        let reuse = &mut *self.reuse;
        if reuse.opaque {
            return;
        }
        let known = reuse.streams.iter().position(|stream| stream.id == stream_id);
        let index = known.unwrap_or_else(|| {
            let stream = Stream { id: stream_id, reach: Reach::default(), shown: 0 };
            reuse.streams.push(stream);
            reuse.streams.len() - 1
        });
        let stream = &mut reuse.streams[index];
        stream.shown = reuse.looks_count;
        let before: Vec<u32> = stream.reach.terminals().collect();
        match stream.reach.advance(&mut reuse.nodes, terminals, &mut ask) {
            Ok(Advance::Forward) => {}
            Ok(Advance::Elsewhere) => reuse.drop_terminals(&before, &mut ask),
            Err(NotKnown) => reuse.opaque = true,
        }
    }

    /// The markers of a block that is freed now.
    pub fn freed(&self, birth: &Birth, scope: Scope) -> Markers {
        let Some(streams) = self.shown(scope) else { return Markers::unknown() };
        let mut markers = birth.earlier.clone();
        if !rule_holds(Rule::CaptureFreeMarks) {
            return markers;
        }
        for stream in streams {
            markers.note(&stream.reach, birth);
            if scope == Scope::Everywhere && !rule_holds(Rule::CaptureFreeMarksEveryStream) {
                break;
            }
        }
        if scope == Scope::Everywhere && rule_holds(Rule::CaptureDroppedNodesMark) {
            markers.note(&self.reuse.dropped, birth);
        }
        markers.tidy();
        markers
    }

    /// Whether a block with these markers may be handed out now, for use in this scope.
    pub fn reusable(&self, markers: &Markers, scope: Scope) -> Reusable {
        let Some(streams) = self.shown(scope) else { return Reusable::No };
        let answers = streams.map(|stream| (stream, markers.answer(&stream.reach)));
        if !rule_holds(Rule::CaptureReuseForEveryStream) {
            return answers.map(|(_, answer)| answer).max().unwrap_or(Reusable::No);
        }
        let mut proven: Vec<&Stream> = Vec::new();
        let mut all = Reusable::Yes;
        for (stream, answer) in answers {
            if answer != Reusable::No {
                proven.push(stream);
                all = all.min(answer);
            } else if stream.is_behind_one_of(&proven) {
                all = Reusable::UnlessEarly;
            } else {
                return Reusable::No;
            }
        }
        all
    }

    /// Fresh memory is handed out.
    pub fn fresh(&self) -> Birth {
        let earlier = if self.reuse.opaque { Markers::unknown() } else { Markers::none() };
        Birth { nodes_count: self.reuse.nodes.count(), earlier }
    }

    /// A free block is handed out whose markers were found `reusable` for this scope, in this look.
    /// `ask` as in `stream`.
    pub fn born(
        &mut self,
        markers: &Markers,
        scope: Scope,
        mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Birth {
        let mut birth = self.fresh();
        match scope {
            Scope::Stream(_) if !markers.is_empty() && rule_holds(Rule::CaptureReuseIsMarked) => {
                let streams = self.shown(scope).into_iter().flatten();
                birth.earlier.extend(streams.flat_map(|stream| stream.reach.terminals()));
            }
            Scope::Stream(_) => {}
            Scope::Everywhere => {
                let Reuse { nodes, proven, opaque, .. } = &mut *self.reuse;
                for number in markers.iter() {
                    *opaque |= proven.add(nodes, number, &mut ask).is_err();
                }
            }
        }
        birth
    }

    /// What has to be done to this stream (U5, U8).
    pub fn mend(&self, stream_id: u64) -> Mend {
        let reuse = &*self.reuse;
        let stream = reuse.streams.iter().find(|stream| stream.id == stream_id);
        let Some(Stream { reach, .. }) =
            stream.filter(|_| rule_holds(Rule::CaptureStreamsAreMended))
        else {
            return Mend::Nothing;
        };
        let missing = || reuse.proven.terminals().filter(|number| !reach.is_complete(*number));
        if missing().all(|number| reach.is_full_terminal(number)) {
            return if missing().next().is_none() { Mend::Nothing } else { Mend::FullOrder };
        }
        // A terminal that is complete when the markers are says nothing more.
        let kept = reach.edges().filter(|(number, _)| {
            !reuse.proven.is_complete(*number) && missing().all(|marker| marker != *number)
        });
        let marked = missing().map(|number| (number, EdgeKind::Full));
        let edge = |(number, kind)| Edge { from: reuse.nodes.handle(number), kind };
        Mend::Set(kept.chain(marked).map(edge).collect())
    }

    /// The streams that a scope is about; None if not all of them are shown, or nothing is reused.
    fn shown(&self, scope: Scope) -> Option<impl Iterator<Item = &Stream>> {
        let reuse = &*self.reuse;
        let concerned = move |stream: &&Stream| match scope {
            Scope::Stream(id) => stream.id == id,
            Scope::Everywhere => true,
        };
        let streams = reuse.streams.iter().filter(concerned);
        let shown = streams.clone().all(|stream| stream.shown == reuse.looks_count);
        let any = streams.clone().next().is_some();
        (any && shown && !reuse.opaque).then_some(streams)
    }
}

impl Stream {
    /// U8.
    fn is_behind_one_of(&self, older: &[&Stream]) -> bool {
        let over = |older: &Reach| {
            self.reach.edges().all(|(number, kind)| {
                kind == EdgeKind::Full
                    && (older.is_complete(number) || older.is_full_terminal(number))
            })
        };
        let idle = self.reach.terminals().next().is_some();
        idle && older.iter().any(|older| over(&older.reach))
    }
}

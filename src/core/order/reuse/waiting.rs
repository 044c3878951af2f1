//! Freed blocks that wait for their markers.
//!
//! A capture may free as many blocks as it has nodes, and request as many: checking each block at
//! each allocation would be quadratic. So a block that may not be reused yet *watches* its
//! obstacle, a node that is not complete for a stream. It is checked again when that is complete.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::markers::Markers;
use super::nodes::{Edge, Node};
use super::{Look, Reuse, Scope, Stream};
use crate::rules::{Rule, rule_holds};
use crate::types::BlockId;

#[derive(Clone, Debug, Default)]
pub(super) struct WaitingBlocks {
    blocks: BTreeMap<BlockId, Freed>,
    due: BTreeSet<BlockId>,
}

#[derive(Clone, Debug)]
struct Freed {
    markers: Markers,
    /// Streams that may reuse the block before others.
    streams: [Option<u64>; 2],
}

/// Why a block cannot be reused yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle {
    /// A node is not complete for a stream.
    Node { stream_id: u64, number: u32 },
    /// A stream has not begun its branch.
    Branch { stream_id: u64 },
}

impl WaitingBlocks {
    pub(super) fn insert(&mut self, block: BlockId, markers: Markers, streams: [Option<u64>; 2]) {
        self.blocks.insert(block, Freed { markers, streams });
        self.due.insert(block);
    }

    pub(super) fn ask_again(&mut self, blocks: impl Iterator<Item = BlockId>) {
        self.due.extend(blocks);
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }
}

impl Look<'_> {
    /// Returns the blocks that have become free, each with its scope; they no longer wait.
    /// `edge_update` preserves the proof that this relies on. `ask` is described at `stream`.
    pub fn ready(
        &mut self,
        mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Vec<(BlockId, Scope)> {
        let reuse = &mut *self.reuse;
        let mut ready = Vec::new();
        if !reuse.is_whole() {
            return ready;
        }
        for stream in &mut reuse.streams {
            for number in stream.reach.take_news() {
                reuse.waiting.due.extend(stream.watched.remove(&number).into_iter().flatten());
            }
            if !stream.is_at_branch() {
                reuse.waiting.due.append(&mut stream.watched_branch);
            }
        }
        for block in core::mem::take(&mut reuse.waiting.due) {
            let Some(freed) = reuse.waiting.blocks.remove(&block) else { continue };
            match reuse.scope_of(&freed) {
                Ok(scope) => {
                    reuse.prove(&freed.markers, scope, &mut ask);
                    ready.push((block, scope));
                }
                Err(obstacles) => {
                    reuse.waiting.blocks.insert(block, freed);
                    obstacles.into_iter().for_each(|obstacle| reuse.watch(block, obstacle));
                }
            }
        }
        ready
    }

    /// Returns whether everything free in the order of this stream is now free for any stream,
    /// because the stream was joined. If so, `edge_update` preserves that. `ask` is described at
    /// `stream`.
    #[cfg(test)]
    pub(crate) fn is_joined(
        &mut self,
        stream_id: u64,
        mut ask: impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> bool {
        let reuse = &mut *self.reuse;
        let Some(stream) = reuse.find(stream_id).filter(|_| reuse.is_whole()) else { return false };
        let markers: Markers = stream.reach.terminals().collect();
        let joined = !markers.is_unknown() && reuse.obstacles_everywhere(&markers).is_ok();
        if joined {
            reuse.prove(&markers, Scope::Everywhere, &mut ask);
        }
        joined
    }
}

impl Reuse {
    /// Returns whether some block is free but was not reported.
    #[cfg(test)]
    pub(crate) fn overlooks(&self) -> bool {
        self.is_whole() && self.waiting.blocks.values().any(|freed| self.scope_of(freed).is_ok())
    }

    /// Returns the scope for which a block is free, or its obstacles.
    fn scope_of(&self, freed: &Freed) -> Result<Scope, Vec<Obstacle>> {
        let mut obstacles = match self.obstacles_everywhere(&freed.markers) {
            Ok(()) => return Ok(Scope::Everywhere),
            Err(obstacles) => obstacles,
        };
        let streams = freed.streams.iter().flatten();
        for stream in streams.filter_map(|stream_id| self.find(*stream_id)) {
            match freed.markers.first_not_complete(&stream.reach) {
                None => return Ok(Scope::Stream(stream.id)),
                Some(number) => obstacles.push(stream.lacks(number)),
            }
        }
        Err(obstacles)
    }

    fn obstacles_everywhere(&self, markers: &Markers) -> Result<(), Vec<Obstacle>> {
        if !rule_holds(Rule::CaptureReuseForEveryStream) {
            let mut streams = self.streams.iter();
            let is_proven = |stream: &Stream| markers.first_not_complete(&stream.reach).is_none();
            return if streams.any(is_proven) { Ok(()) } else { Err(Vec::new()) };
        }
        let mut proven: Vec<&Stream> = Vec::new();
        for stream in &self.streams {
            let Some(number) = markers.first_not_complete(&stream.reach) else {
                proven.push(stream);
                continue;
            };
            if proven.iter().any(|older| stream.ahead_of(older).is_none()) {
                continue;
            }
            let mut obstacles = alloc::vec![stream.lacks(number)];
            // Most streams are joined by the one on which the capture began.
            obstacles.extend(proven.first().and_then(|older| stream.ahead_of(older)));
            return Err(obstacles);
        }
        match proven.is_empty() {
            true => Err(Vec::new()),
            false => Ok(()),
        }
    }

    fn watch(&mut self, block: BlockId, obstacle: Obstacle) {
        let (Obstacle::Node { stream_id, .. } | Obstacle::Branch { stream_id }) = obstacle;
        let mut streams = self.streams.iter_mut();
        let Some(stream) = streams.find(|stream| stream.id == stream_id) else { return };
        match obstacle {
            Obstacle::Node { number, .. } => {
                stream.reach.watch(number);
                stream.watched.entry(number).or_default().insert(block);
            }
            Obstacle::Branch { .. } => {
                stream.watched_branch.insert(block);
            }
        }
    }

    /// Records that these markers are complete for everything captured from now on in this scope.
    fn prove(
        &mut self,
        markers: &Markers,
        scope: Scope,
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) {
        let proven = match scope {
            Scope::Everywhere => &mut self.proven,
            Scope::Stream(id) => {
                let mut streams = self.streams.iter_mut();
                let stream = streams.find(|stream| stream.id == id).expect("it was proven for");
                &mut stream.proven
            }
        };
        let mut known = true;
        for number in markers.iter() {
            known &= proven.add(&mut self.nodes, number, ask).is_ok();
        }
        if !known {
            self.becomes_blind();
        }
    }
}

impl Stream {
    fn lacks(&self, number: u32) -> Obstacle {
        Obstacle::Node { stream_id: self.id, number }
    }

    /// Returns whether the stream has waited and captured nothing since, or captured nothing at all
    /// (U8).
    fn is_at_branch(&self) -> bool {
        self.reach.terminals().all(|number| number < self.branch_from)
    }

    /// Returns the obstacle to this stream being ordered after an older one, or `None` if it is.
    fn ahead_of(&self, older: &Stream) -> Option<Obstacle> {
        if self.is_at_branch() {
            return Some(Obstacle::Branch { stream_id: self.id });
        }
        let ahead = |number: &u32| {
            !older.reach.is_complete(*number) && !older.reach.is_full_terminal(*number)
        };
        self.reach.terminals().find(ahead).map(|number| older.lacks(number))
    }
}

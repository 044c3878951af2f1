//! Freed blocks that wait for their markers.
//!
//! A capture may free as many blocks as it has nodes, and ask for as many: asking for each block at
//! each allocation would be quadratic. So a block that may not be used yet *watches* what stands
//! in its way: a node that is not complete for a stream. It is looked at again when it is.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::markers::Markers;
use super::nodes::{Edge, Node};
use super::{Look, Reuse, Scope, Stream};
use crate::rules::{Rule, rule_holds};
use crate::types::BlockId;

#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    blocks: BTreeMap<BlockId, Freed>,
    due: BTreeSet<BlockId>,
}

#[derive(Clone, Debug)]
struct Freed {
    markers: Markers,
    /// Streams that may have it before others may.
    streams: [Option<u64>; 2],
}

/// That this node is not complete for this stream stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Obstacle {
    stream_id: u64,
    number: u32,
}

impl Waiting {
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
    /// The blocks that have become free, and for whom; they wait no more. What that rests on is kept
    /// true by `mend`. `ask` as in `stream`.
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

    /// Whether all that is free in the order of this stream is free for anyone by now, because the
    /// stream was joined; if so, that is kept true by `mend`. `ask` as in `stream`.
    pub fn is_joined(
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
    /// For whom a block is free, or what stands in the way.
    fn scope_of(&self, freed: &Freed) -> Result<Scope, Vec<Obstacle>> {
        let mut obstacles = match self.obstacles_everywhere(&freed.markers) {
            Ok(()) => return Ok(Scope::Everywhere),
            Err(obstacles) => obstacles,
        };
        let streams = freed.streams.iter().flatten();
        for stream in streams.filter_map(|stream_id| self.find(*stream_id)) {
            match freed.markers.first_not_complete(&stream.reach) {
                None => return Ok(Scope::Stream(stream.id)),
                Some(number) => obstacles.push(Obstacle { stream_id: stream.id, number }),
            }
        }
        Err(obstacles)
    }

    fn obstacles_everywhere(&self, markers: &Markers) -> Result<(), Vec<Obstacle>> {
        let mut proven: Vec<&Stream> = Vec::new();
        for stream in &self.streams {
            let Some(number) = markers.first_not_complete(&stream.reach) else {
                if !rule_holds(Rule::CaptureReuseForEveryStream) {
                    return Ok(());
                }
                proven.push(stream);
                continue;
            };
            if proven.iter().any(|older| stream.first_ahead_of(older).is_none()) {
                continue;
            }
            if !rule_holds(Rule::CaptureReuseForEveryStream) {
                continue;
            }
            let mut obstacles = alloc::vec![Obstacle { stream_id: stream.id, number }];
            // Most streams are joined by the one that the capture began on.
            let ahead = proven.first().and_then(|older| {
                let number = stream.first_ahead_of(older)??;
                Some(Obstacle { stream_id: older.id, number })
            });
            obstacles.extend(ahead);
            return Err(obstacles);
        }
        match proven.is_empty() {
            true => Err(Vec::new()),
            false => Ok(()),
        }
    }

    fn watch(&mut self, block: BlockId, obstacle: Obstacle) {
        let mut streams = self.streams.iter_mut();
        if let Some(stream) = streams.find(|stream| stream.id == obstacle.stream_id) {
            stream.reach.watch(obstacle.number);
            stream.watched.entry(obstacle.number).or_default().insert(block);
        }
    }

    /// These markers are complete for all that is captured from now on in this scope.
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
            self.turns_blind();
        }
    }
}

impl Stream {
    /// The first terminal that is not complete for an older stream, if any is; Some(None) if this
    /// stream cannot be behind another one, because it has no terminals (U8).
    fn first_ahead_of(&self, older: &Stream) -> Option<Option<u32>> {
        let mut terminals = self.reach.terminals().peekable();
        if terminals.peek().is_none() {
            return Some(None);
        }
        let ahead = |number: &u32| {
            !older.reach.is_complete(*number) && !older.reach.is_full_terminal(*number)
        };
        terminals.find(ahead).map(Some)
    }
}

//! A graph during its capture, and the possible orders of its replays. The model is naive: it
//! remembers nothing.

use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

use super::super::std;
use crate::order::reuse::{Edge, EdgeKind, Node};

pub const STREAMS: usize = 3;
pub const EVENTS: usize = 2;

/// The order that replays keep for an edge, and the kind that the driver shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    pub kept: EdgeKind,
    pub shown: EdgeKind,
}

impl Promise {
    pub const FULL: Promise = Promise { kept: EdgeKind::Full, shown: EdgeKind::Full };
    pub const EARLY: Promise = Promise { kept: EdgeKind::Early, shown: EdgeKind::Early };
    /// An edge whose kind the driver does not show.
    pub const HIDDEN: Promise = Promise { kept: EdgeKind::Early, shown: EdgeKind::Unknown };
    /// An edge whose kind the driver does not show and that promises nothing: its second node may
    /// start before its first one.
    pub const NONE: Promise = Promise { kept: EdgeKind::Unknown, shown: EdgeKind::Unknown };
}

/// An edge from a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    pub from: usize,
    pub promise: Promise,
}

impl Link {
    pub fn full(from: usize) -> Link {
        Link { from, promise: Promise::FULL }
    }

    fn edge(self) -> Edge {
        Edge { from: Node(self.from as u64), kind: self.promise.shown }
    }
}

/// Streams that are part of the capture have terminals; stream 0 began the capture.
#[derive(Clone, Debug)]
pub struct Graph {
    pub nodes: Vec<Vec<Link>>,
    /// Nodes that no later node can overlap by an early start: allocations and frees.
    solid: HashSet<usize>,
    pub streams: [Option<Vec<Link>>; STREAMS],
    pub events: [Option<Vec<Link>>; EVENTS],
}

impl Graph {
    pub fn new() -> Graph {
        let mut streams = [const { None }; STREAMS];
        streams[0] = Some(vec![]);
        Graph { nodes: vec![], solid: HashSet::new(), streams, events: [const { None }; EVENTS] }
    }

    /// Captures the next node of the stream; `promise` is the one that the launch asks for.
    pub fn capture(&mut self, stream: usize, promise: Option<Promise>) -> Option<usize> {
        let mut links = self.streams[stream].clone()?;
        if let Some(promise) = promise {
            let kernels = links.iter_mut().filter(|link| !self.solid.contains(&link.from));
            kernels.for_each(|link| link.promise = promise);
        }
        let node = self.nodes.len();
        self.nodes.push(links);
        self.streams[stream] = Some(vec![Link::full(node)]);
        Some(node)
    }

    /// Captures an allocation or a free.
    pub fn capture_solid(&mut self, stream: usize) -> Option<usize> {
        let node = self.capture(stream, None)?;
        self.solid.insert(node);
        Some(node)
    }

    pub fn record(&mut self, event: usize, stream: usize) -> Option<()> {
        self.events[event] = Some(self.streams[stream].clone()?);
        Some(())
    }

    pub fn wait(&mut self, stream: usize, event: usize) -> Option<()> {
        let links = self.events[event].clone()?;
        let terminals = self.streams[stream].get_or_insert_default();
        for link in links {
            if terminals.iter().all(|known| known.from != link.from) {
                terminals.push(link);
            }
        }
        Some(())
    }

    /// Returns the edges of a stream that the core is shown.
    pub fn shown(&self, stream: usize) -> Vec<Edge> {
        self.streams[stream].iter().flatten().map(|link| link.edge()).collect()
    }

    /// Adds the edges of a node that the core is shown.
    pub fn ask(&self, node: Node, edges: &mut Vec<Edge>) -> bool {
        edges.extend(self.nodes[node.0 as usize].iter().map(|link| link.edge()));
        true
    }

    /// Returns whether `before` is complete whenever `node` has started, by following edges
    /// backwards. A node that has started only allows an early one after it to start. Nothing can
    /// be concluded past an edge that promises nothing.
    pub fn is_complete(&self, before: usize, node: usize) -> bool {
        let (mut seen, mut stack) = (HashSet::from([node]), vec![node]);
        while let Some(node) = stack.pop() {
            for link in &self.nodes[node] {
                if link.from == before && link.promise.kept == EdgeKind::Full {
                    return true;
                }
                if link.promise.kept != EdgeKind::Unknown && seen.insert(link.from) {
                    stack.push(link.from);
                }
            }
        }
        false
    }

    /// Computes `is_complete` by trying every state that a replay can be in.
    pub fn always_complete(&self, before: usize, node: usize) -> bool {
        const STARTED: u8 = 1;
        const DONE: u8 = 2;
        let (mut seen, mut stack) = (HashSet::new(), vec![vec![0_u8; self.nodes.len()]]);
        while let Some(state) = stack.pop() {
            if state[node] != 0 && state[before] != DONE {
                return false;
            }
            for (at, links) in self.nodes.iter().enumerate() {
                let may_start = links.iter().all(|link| match link.promise.kept {
                    EdgeKind::Full => state[link.from] == DONE,
                    EdgeKind::Early => state[link.from] != 0,
                    EdgeKind::Unknown => true,
                });
                let next = match state[at] {
                    0 if may_start => STARTED,
                    STARTED => DONE,
                    _ => continue,
                };
                let mut later = state.clone();
                later[at] = next;
                if seen.insert(later.clone()) {
                    stack.push(later);
                }
            }
        }
        true
    }
}

//! A graph while it is captured, and what its replays may do. Naive: nothing is remembered.

use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

use super::super::std;
use crate::order::reuse::{Edge, EdgeKind, Node};

pub const STREAMS: usize = 3;
pub const EVENTS: usize = 2;

/// An edge from a node; `shown` is what the driver says of it, `early` what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    pub from: usize,
    pub early: bool,
    pub shown: EdgeKind,
}

impl Link {
    pub fn full(from: usize) -> Link {
        Link { from, early: false, shown: EdgeKind::Full }
    }

    pub fn early(from: usize, shown: EdgeKind) -> Link {
        Link { from, early: true, shown }
    }

    fn edge(self) -> Edge {
        Edge { from: Node(self.from as u64), kind: self.shown }
    }
}

/// Streams that are part of the capture have terminals; stream 0 began it.
#[derive(Clone, Debug)]
pub struct Graph {
    pub nodes: Vec<Vec<Link>>,
    /// Nodes that nothing behind them can start early with: allocations and frees.
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

    /// What the stream captures next; `early` is what the launch asks for.
    pub fn capture(&mut self, stream: usize, early: Option<EdgeKind>) -> Option<usize> {
        let mut links = self.streams[stream].clone()?;
        if let Some(shown) = early {
            let kernels = links.iter_mut().filter(|link| !self.solid.contains(&link.from));
            kernels.for_each(|link| *link = Link::early(link.from, shown));
        }
        let node = self.nodes.len();
        self.nodes.push(links);
        self.streams[stream] = Some(vec![Link::full(node)]);
        Some(node)
    }

    /// An allocation or a free.
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

    /// What the core is shown of a stream.
    pub fn shown(&self, stream: usize) -> Vec<Edge> {
        self.streams[stream].iter().flatten().map(|link| link.edge()).collect()
    }

    /// And of a node.
    pub fn ask(&self, node: Node, edges: &mut Vec<Edge>) -> bool {
        edges.extend(self.nodes[node.0 as usize].iter().map(|link| link.edge()));
        true
    }

    /// Whether `before` is complete whenever `node` has started: by going back over edges. A node
    /// that has started lets an early one behind it start, no more.
    pub fn is_complete(&self, before: usize, node: usize) -> bool {
        let (mut seen, mut stack) = (HashSet::from([node]), vec![node]);
        while let Some(node) = stack.pop() {
            for link in &self.nodes[node] {
                if link.from == before && !link.early {
                    return true;
                }
                if seen.insert(link.from) {
                    stack.push(link.from);
                }
            }
        }
        false
    }

    /// The same by trying: every state that a replay can be in.
    pub fn always_complete(&self, before: usize, node: usize) -> bool {
        const STARTED: u8 = 1;
        const DONE: u8 = 2;
        let (mut seen, mut stack) = (HashSet::new(), vec![vec![0_u8; self.nodes.len()]]);
        while let Some(state) = stack.pop() {
            if state[node] != 0 && state[before] != DONE {
                return false;
            }
            for (at, links) in self.nodes.iter().enumerate() {
                let may_start = links.iter().all(|link| match link.early {
                    true => state[link.from] != 0,
                    false => state[link.from] == DONE,
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

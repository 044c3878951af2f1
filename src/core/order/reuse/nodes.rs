//! The known part of the graph of a running capture: nodes by number, and their edges.
//!
//! * N1: a node's edges are queried once. They never change while it is captured: a node is made
//!   with all its edges. Changing them by hand makes the capture opaque (`reuse`).
//! * N2: numbers are given as nodes become known, so they say nothing of the graph's order but
//!   this: a node that is not known yet has a number above all that are.
//! * N3: there are never more than `NODES_COUNT_MAX`; after that the capture is opaque as well.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// A node, by the driver's handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node(pub u64);

/// The guarantee that an edge gives to the node it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeKind {
    /// The source node is complete.
    Full,
    /// The source node has started: a programmatic edge.
    Early,
    /// No guarantee: the edge data is unknown, or the driver does not report it.
    Unknown,
}

/// An edge, identified by the node it comes from: into a node, or from a terminal of a stream into
/// the stream's next node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The source node.
    pub from: Node,
    /// The guarantee that holds when the target node starts.
    pub kind: EdgeKind,
}

impl EdgeKind {
    /// Converts `CUgraphEdgeData`: port of the source node, port of the target node, type. All zero
    /// is an ordinary edge. Unknown bytes promise nothing.
    pub fn from_data(from_port: u8, to_port: u8, kind: u8) -> EdgeKind {
        match (from_port, to_port, kind) {
            (0, 0, 0) => EdgeKind::Full,
            (1 | 2, 0, 1) => EdgeKind::Early,
            _ => EdgeKind::Unknown,
        }
    }
}

/// Nodes of one capture that are examined: 100,000 nodes need about 5 MB.
pub const NODES_COUNT_MAX: usize = 1 << 20;

/// The driver does not report the edges into a node, or there are too many nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotKnown;

#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    numbers: BTreeMap<Node, u32>,
    handles: Vec<Node>,
    /// For each node, the range in `edges` of the edges into it. `None` if not queried yet.
    spans: Vec<Option<(u32, u32)>>,
    edges: Vec<(u32, EdgeKind)>,
    answer: Vec<Edge>,
}

impl Nodes {
    pub(crate) fn count(&self) -> u32 {
        self.handles.len() as u32
    }

    pub(crate) fn handle(&self, number: u32) -> Node {
        self.handles[number as usize]
    }

    pub(crate) fn number(&mut self, node: Node) -> Result<u32, NotKnown> {
        if let Some(&number) = self.numbers.get(&node) {
            return Ok(number);
        }
        if self.handles.len() == NODES_COUNT_MAX {
            return Err(NotKnown);
        }
        let number = self.count();
        self.numbers.insert(node, number);
        self.handles.push(node);
        self.spans.push(None);
        Ok(number)
    }

    /// Returns the edges into a node, as indices for `edge`. `ask` is described at `Look::stream`.
    pub(crate) fn edges_into(
        &mut self,
        number: u32,
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Result<Range<usize>, NotKnown> {
        if let Some((start, end)) = self.spans[number as usize] {
            return Ok(start as usize..end as usize);
        }
        let mut answer = core::mem::take(&mut self.answer);
        answer.clear();
        let start = self.edges.len();
        let mut known = ask(self.handle(number), &mut answer);
        for edge in &answer {
            match self.number(edge.from) {
                Ok(from) => self.edges.push((from, edge.kind)),
                Err(NotKnown) => known = false,
            }
        }
        self.answer = answer;
        let end = self.edges.len();
        let fits = u32::try_from(end).is_ok();
        if !known || !fits {
            return Err(NotKnown);
        }
        self.spans[number as usize] = Some((start as u32, end as u32));
        Ok(start..end)
    }

    pub(crate) fn edge(&self, index: usize) -> (u32, EdgeKind) {
        self.edges[index]
    }
}

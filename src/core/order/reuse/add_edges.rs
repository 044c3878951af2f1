//! Changes to a stream that preserve what was proven (U5, U6).

use alloc::vec::Vec;

use super::nodes::{Edge, EdgeKind};
use super::{Look, Reuse, Stream};
use crate::rules::{Rule, rule_holds};

/// A change to a stream of the capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EdgeUpdate {
    Nothing,
    /// The stream's next node does not start early.
    FullOrder,
    /// The stream's terminals are set to these, by ordinary edges, and its next node does not start
    /// early.
    Set(Vec<Edge>),
}

impl Look<'_> {
    /// Returns the change that this stream needs.
    ///
    /// The terminals are set, not added: a joined side stream would otherwise gather a terminal
    /// with each reuse. All become ordinary edges: the next node does not start early anyway.
    pub fn edge_update(&self, stream_id: u64) -> EdgeUpdate {
        let reuse = &*self.reuse;
        let Some(stream) = reuse.find(stream_id) else { return EdgeUpdate::Nothing };
        if reuse.blind {
            return reuse.add_all_edges(stream);
        }
        let (everywhere, here, reach) = (&reuse.proven, &stream.proven, &stream.reach);
        let proven = everywhere.terminals().chain(here.terminals());
        let mut missing: Vec<u32> = proven.filter(|number| !reach.is_complete(*number)).collect();
        if missing.is_empty() {
            return EdgeUpdate::Nothing;
        }
        if missing.iter().all(|number| reach.is_full_terminal(*number)) {
            let holds = rule_holds(Rule::CaptureReuseNotEarly);
            return if holds { EdgeUpdate::FullOrder } else { EdgeUpdate::Nothing };
        }
        if !rule_holds(Rule::CaptureEdgesAreAdded) {
            return EdgeUpdate::Nothing;
        }
        missing.sort_unstable();
        missing.dedup();
        // Nodes that are complete whenever a marker is add nothing.
        let says_more =
            |number: &u32| !everywhere.is_complete(*number) && !here.is_complete(*number);
        let kept = reach
            .edges()
            .filter(|(number, _)| says_more(number) && missing.binary_search(number).is_err());
        let marked = missing.iter().copied().filter(says_more);
        let numbers = kept.map(|(number, _)| number).chain(marked);
        EdgeUpdate::Set(numbers.map(|number| reuse.full_edge(number)).collect())
    }
}

impl Reuse {
    /// Returns the change to use if nothing is known about the nodes before the terminals.
    fn add_all_edges(&self, stream: &Stream) -> EdgeUpdate {
        let proven = self.proven.terminals().chain(stream.proven.terminals());
        let mut proven: Vec<u32> = proven.collect();
        // What was proven for this stream may have been proven for every stream later.
        proven.sort_unstable();
        proven.dedup();
        let proven: Vec<Edge> = proven.into_iter().map(|number| self.full_edge(number)).collect();
        if proven.iter().all(|edge| stream.terminals.contains(edge)) {
            return if proven.is_empty() { EdgeUpdate::Nothing } else { EdgeUpdate::FullOrder };
        }
        let mut edges = proven;
        for Edge { from, .. } in &stream.terminals {
            if edges.iter().all(|known| known.from != *from) {
                edges.push(Edge { from: *from, kind: EdgeKind::Full });
            }
        }
        EdgeUpdate::Set(edges)
    }

    fn full_edge(&self, number: u32) -> Edge {
        Edge { from: self.nodes.handle(number), kind: EdgeKind::Full }
    }
}

//! The state kept for one block: while it is handed out, and after its free.

use alloc::vec::Vec;

use super::reach::Reach;
use crate::rules::{Rule, rule_holds};

/// Maximum number of markers of one block. A block that needs more waits for the end of the
/// capture.
pub const MARKERS_COUNT_MAX: usize = 256;

/// Nodes that must be complete before a freed block is used again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Markers {
    /// In ascending order.
    nodes: Vec<u32>,
    /// Whether some markers could not be found: the block waits for the end of the capture.
    unknown: bool,
}

/// The state of a block to remember from its allocation to its free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocationPoint {
    /// Nodes with a smaller number were captured before.
    pub(super) nodes_count: u32,
    /// Markers of its earlier users.
    pub(super) earlier: Markers,
}

impl Markers {
    pub(super) fn none() -> Markers {
        Markers { nodes: Vec::new(), unknown: false }
    }

    pub(super) fn unknown() -> Markers {
        Markers { nodes: Vec::new(), unknown: true }
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.unknown
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().copied()
    }

    /// Adds every node before these terminals, and the terminals, that may use a block allocated
    /// when there were `nodes_count` nodes (U1, U2).
    pub(super) fn note(&mut self, reach: &Reach, nodes_count: u32) {
        let room = MARKERS_COUNT_MAX + 1;
        let terminals = reach.terminals().filter(|number| *number >= nodes_count);
        self.nodes.extend(terminals.take(room));
        if rule_holds(Rule::CaptureLooseNodesMark) {
            self.nodes.extend(reach.loose_from(nodes_count).take(room));
        }
        self.tidy();
    }

    /// Returns the first marker that is not complete when the next node after these terminals
    /// starts.
    pub(super) fn first_not_complete(&self, reach: &Reach) -> Option<u32> {
        self.iter().find(|number| !reach.is_complete(*number) && !reach.is_full_terminal(*number))
    }

    fn tidy(&mut self) {
        self.nodes.sort_unstable();
        self.nodes.dedup();
        self.unknown |= self.nodes.len() > MARKERS_COUNT_MAX;
    }
}

impl FromIterator<u32> for Markers {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Markers {
        let mut markers = Markers { nodes: numbers.into_iter().collect(), unknown: false };
        markers.tidy();
        markers
    }
}

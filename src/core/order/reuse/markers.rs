//! What is remembered of one block: while it is handed out, and after its free.

use alloc::vec::Vec;

use super::reach::Reach;
use crate::rules::{Rule, rule_holds};

/// Markers of one block. One that needs more waits for the end of the capture.
pub const MARKERS_COUNT_MAX: usize = 256;

/// Nodes that must be complete before a freed block is used again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Markers {
    /// In ascending order.
    nodes: Vec<u32>,
    /// Not all could be found.
    unknown: bool,
}

/// What has to be remembered of a block from being handed out to its free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Birth {
    /// Nodes with a smaller number were captured before.
    pub(super) nodes_count: u32,
    /// Markers of its earlier users.
    pub(super) earlier: Markers,
}

/// Whether a block may be handed out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reusable {
    /// Not now, perhaps later in this capture.
    No,
    /// Yes, if the next node of each stream concerned does not start early, and streams are mended.
    UnlessEarly,
    /// Yes.
    Yes,
}

impl Markers {
    /// Of a block that nothing has used.
    pub fn none() -> Markers {
        Markers { nodes: Vec::new(), unknown: false }
    }

    /// Of a block that waits for the end of the capture, whatever happens.
    pub fn unknown() -> Markers {
        Markers { nodes: Vec::new(), unknown: true }
    }

    /// Free blocks become one: it waits for what either waited for.
    pub fn join(&mut self, other: &Markers) {
        self.nodes.extend(&other.nodes);
        self.unknown |= other.unknown;
        self.tidy();
    }

    /// Whether the block waits for the end of the capture, whatever happens.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether the block may be handed out anywhere, at once.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && !self.unknown
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().copied()
    }

    pub(super) fn extend(&mut self, numbers: impl Iterator<Item = u32>) {
        self.nodes.extend(numbers);
        self.tidy();
    }

    /// All that a block born then may be in use by, behind these terminals (U1, U2).
    pub(super) fn note(&mut self, reach: &Reach, birth: &Birth) {
        let first = birth.nodes_count;
        let room = MARKERS_COUNT_MAX + 1;
        self.nodes.extend(reach.terminals().filter(|number| *number >= first).take(room));
        if rule_holds(Rule::CaptureLooseNodesMark) {
            self.nodes.extend(reach.loose_from(first).take(room));
        }
    }

    pub(super) fn tidy(&mut self) {
        self.nodes.sort_unstable();
        self.nodes.dedup();
        self.unknown |= self.nodes.len() > MARKERS_COUNT_MAX;
        if self.unknown {
            self.nodes = Vec::new();
        }
    }

    /// Whether the markers are complete when the next node behind these terminals starts (U6).
    pub(super) fn answer(&self, reach: &Reach) -> Reusable {
        if self.unknown {
            return Reusable::No;
        }
        let each = self.nodes.iter().map(|number| {
            if reach.is_complete(*number) {
                Reusable::Yes
            } else if !reach.is_full_terminal(*number) {
                Reusable::No
            } else if rule_holds(Rule::CaptureReuseNotEarly) {
                Reusable::UnlessEarly
            } else {
                Reusable::Yes
            }
        });
        each.min().unwrap_or(Reusable::Yes)
    }
}

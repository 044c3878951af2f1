//! The nodes that are complete, and those that have started, when the next node of a stream starts:
//! the nodes before its terminals, found by a walk against the edges that is never repeated.
//!
//! * R1: a node *has started* if an ordinary or an early edge leads from it to a terminal or to a
//!   node that has started, or if it is a terminal itself.
//! * R2: a node *is complete* if an ordinary edge leads from it to a node that has started. So an
//!   early edge proves nothing about the node that it comes from, and all that this one waited for.
//! * R3: a node is *loose* if an edge that is not ordinary leads from it to a node before the
//!   terminals, or to a terminal. It may run on when its successors are complete.
//! * R4: what was found stays true while the terminals only advance: every previous terminal is one
//!   now, or comes before one. That is checked each time, and if it fails, all is forgotten.
//!
//! A terminal itself is complete for the next node only if that one is not started early, which the
//! caller decides: terminals count as started, no more.
//!
//! Note [Advancing] has the proof of R4.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::nodes::{Edge, EdgeKind, Node, Nodes, NotKnown};
use crate::rules::{Rule, rule_holds};

/// The node comes before the terminals, by edges of any kind.
const SEEN: u8 = 1;
const STARTED: u8 = 2;
const COMPLETE: u8 = 4;
/// The node was a terminal, and the walk from the new ones has not reached it yet.
const UNMET: u8 = 8;
/// The node is to be reported when it is complete.
const WATCHED: u8 = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    terminals: Vec<(u32, EdgeKind)>,
    /// The known state of each node, by number.
    flags: Vec<u8>,
    loose: BTreeSet<u32>,
    /// Nodes whose edges are still to be followed, and whether they have started.
    stack: Vec<(u32, bool)>,
    unmet_count: usize,
    /// Watched nodes that are complete now.
    news: Vec<u32>,
}

/// The change of the terminals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// The terminals advanced, as R4 requires.
    Forward,
    /// Some terminal was dropped.
    Elsewhere,
}

impl Reach {
    /// Replaces the terminals.
    pub(crate) fn advance(
        &mut self,
        nodes: &mut Nodes,
        now: &[Edge],
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Result<Advance, NotKnown> {
        let mut terminals = Vec::with_capacity(now.len());
        for edge in now {
            terminals.push((nodes.number(edge.from)?, edge.kind));
        }
        if terminals == self.terminals {
            return Ok(Advance::Forward);
        }
        for (number, _) in &self.terminals {
            let flags = &mut self.flags[*number as usize];
            self.unmet_count += usize::from(*flags & UNMET == 0);
            *flags |= UNMET;
        }
        self.terminals = terminals;
        self.follow_terminals(nodes, ask)?;
        if self.unmet_count == 0 || !rule_holds(Rule::CaptureReachAdvances) {
            return Ok(Advance::Forward);
        }
        self.flags.iter_mut().for_each(|flags| *flags &= WATCHED);
        self.loose.clear();
        self.unmet_count = 0;
        self.follow_terminals(nodes, ask)?;
        Ok(Advance::Elsewhere)
    }

    /// Adds a terminal, unless it is complete whenever the others are. Removes those that are
    /// complete whenever it is.
    pub(crate) fn add(
        &mut self,
        nodes: &mut Nodes,
        terminal: u32,
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Result<(), NotKnown> {
        if self.is_complete(terminal) || self.is_full_terminal(terminal) {
            return Ok(());
        }
        self.visit(terminal, true);
        let followed = self.follow(nodes, ask);
        let flags = &self.flags;
        self.terminals.retain(|(known, _)| !has(flags, *known, COMPLETE));
        self.terminals.push((terminal, EdgeKind::Full));
        followed
    }

    pub(crate) fn terminals(&self) -> impl Iterator<Item = u32> {
        self.edges().map(|(number, _)| number)
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (u32, EdgeKind)> {
        self.terminals.iter().copied()
    }

    /// Returns whether this is a terminal that is complete for a next node that does not start
    /// early.
    pub(crate) fn is_full_terminal(&self, number: u32) -> bool {
        self.terminals.contains(&(number, EdgeKind::Full))
    }

    pub(crate) fn is_complete(&self, number: u32) -> bool {
        has(&self.flags, number, COMPLETE)
    }

    /// Makes `take_news` report the node when it is complete for a next node that starts in full
    /// order.
    pub(crate) fn watch(&mut self, number: u32) {
        let index = number as usize;
        if index >= self.flags.len() {
            self.flags.resize(index + 1, 0);
        }
        self.flags[index] |= WATCHED;
    }

    /// Returns the watched nodes that have become complete, and stops watching them.
    pub(crate) fn take_news(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.news)
    }

    /// Returns the loose nodes from a number on.
    pub(crate) fn loose_from(&self, number: u32) -> impl Iterator<Item = u32> {
        self.loose.range(number..).copied()
    }

    fn follow_terminals(
        &mut self,
        nodes: &mut Nodes,
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Result<(), NotKnown> {
        for index in 0..self.terminals.len() {
            let (number, kind) = self.terminals[index];
            self.visit(number, kind != EdgeKind::Unknown);
            if kind == EdgeKind::Full {
                self.report(number);
            }
        }
        self.follow(nodes, ask)
    }

    /// Each node is followed at most twice: as seen, and as started.
    fn follow(
        &mut self,
        nodes: &mut Nodes,
        ask: &mut impl FnMut(Node, &mut Vec<Edge>) -> bool,
    ) -> Result<(), NotKnown> {
        while let Some((number, started)) = self.stack.pop() {
            for index in nodes.edges_into(number, ask)? {
                let (from, mut kind) = nodes.edge(index);
                if !rule_holds(Rule::CaptureEarlyIsNotComplete) {
                    kind = EdgeKind::Full;
                }
                let started = started && kind != EdgeKind::Unknown;
                self.visit(from, started);
                match kind {
                    EdgeKind::Full if started => self.complete(from),
                    EdgeKind::Full => {}
                    EdgeKind::Early | EdgeKind::Unknown => {
                        self.loose.insert(from);
                    }
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, number: u32) {
        self.flags[number as usize] |= COMPLETE;
        self.report(number);
    }

    fn report(&mut self, number: u32) {
        let flags = &mut self.flags[number as usize];
        if *flags & WATCHED != 0 {
            *flags &= !WATCHED;
            self.news.push(number);
        }
    }

    fn visit(&mut self, number: u32, started: bool) {
        let index = number as usize;
        if index >= self.flags.len() {
            self.flags.resize(index + 1, 0);
        }
        let flags = &mut self.flags[index];
        if started && *flags & UNMET != 0 {
            *flags &= !UNMET;
            self.unmet_count -= 1;
        }
        let wanted = if started { SEEN | STARTED } else { SEEN };
        if *flags & wanted != wanted {
            *flags |= wanted;
            self.stack.push((number, started));
        }
    }
}

fn has(flags: &[u8], number: u32, flag: u8) -> bool {
    flags.get(number as usize).is_some_and(|flags| flags & flag != 0)
}

// Note [Advancing]
//
// Let O be the old terminals, N the new ones, and C(X) what R1 to R3 find from X. The walk from N
// stops at nodes that the walk from O has followed. Claim: if it meets every terminal of O, then
// C(O) and what it finds together are C(N), no more and no less.
//
// No less: a node of C(N) lies on a path from N. If every node of the path is new, the walk finds
// it. Otherwise the walk stops at the first one that is not, which is in C(O), and C(O) holds all
// predecessors of its own nodes.
//
// No more: C(O) may only count if C(O) is part of C(N), that is, if each terminal o of O is in N or
// before a node of N. The walk follows only nodes that it has come to from N itself, so when it
// meets o there is a path from N to o, by edges that exist. The same path carries "started" on to
// o, because o only counts as met where the walk comes with it; and all that C(O) says of
// "complete", "started" and "loose" follows from "o has started" by edges that do not change (N1).
//
// In a capture that only advances every o is met: a captured node depends on all terminals of its
// stream, and a wait adds terminals. Otherwise, a program may set the terminals
// (`cuStreamUpdateCaptureDependencies`), or the driver may drop one that another one comes after.
// Then all is found again from N, without asking the driver again (N1). Stopping at nodes of C(O)
// and trusting them without this check is wrong: set back to the root, a stream would pass for
// ordered after all that it has dropped.

#[cfg(test)]
#[path = "../tests/reuse/reach.rs"]
mod tests;

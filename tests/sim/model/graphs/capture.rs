//! Stream capture: which streams record instead of run, and what kills a capture.

use std::collections::HashMap;

use super::graph::{Edge, NodeKind};
use super::recapture::{Changed, Recapture};
use crate::abi::{Code, Handle, Outcome};
use crate::model::contexts::event::Captured;
use crate::model::contexts::stream::StreamKind;
use crate::model::world::World;

pub const GLOBAL: u32 = 0;
pub const THREAD_LOCAL: u32 = 1;
pub const RELAXED: u32 = 2;

#[derive(Default)]
pub struct Captures {
    pub active: HashMap<u64, Capture>,
    /// A node that the present call has captured again with other parameters.
    pub changed: Option<Changed>,
}

pub struct Capture {
    pub graph: Handle,
    pub mode: u32,
    pub origin: Handle,
    pub thread: u32,
    pub valid: bool,
    /// Whether the graph is the program's and outlives a failed capture.
    pub into_graph: bool,
    pub members: Vec<Handle>,
    /// Nodes that the graph had before.
    pub older_nodes: usize,
    pub recapture: Option<Recapture>,
    /// Whether the work goes to a command list of a graphics API, and not to a graph of the
    /// program.
    pub is_graphics: bool,
}

/// What gets the work that a capture records.
pub enum Target {
    NewGraph,
    /// A graph of the program, with the predecessors of the first node.
    Graph(Handle, Vec<Edge>),
    /// A graph whose nodes are captured again.
    SameGraph(Handle, Recapture),
    CommandList,
}

/// A stream's part in a capture: the predecessors of its next node.
pub struct Member {
    pub capture: u64,
    pub terminals: Vec<Edge>,
}

impl World {
    /// Removes a destroyed stream from its capture. A capture that it began is gone, with its
    /// graph, and can no longer be ended.
    pub fn leave_captures(&mut self, stream: Handle) {
        let active = &mut self.captures.active;
        active.values_mut().for_each(|capture| capture.members.retain(|known| *known != stream));
        let begun = active.extract_if(|_, capture| capture.origin == stream);
        let begun: Vec<Capture> = begun.map(|(_, capture)| capture).collect();
        for capture in begun.iter().filter(|capture| !capture.into_graph) {
            let _ = self.destroy_graph(capture.graph); // the program may have destroyed it
        }
    }

    pub fn begin_capture(
        &mut self,
        stream: Handle,
        mode: u32,
        thread: u32,
        target: Target,
    ) -> Outcome {
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        let state = self.streams.get(stream)?;
        if state.kind == StreamKind::Legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.capture_of(stream).is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let is_graphics = matches!(target, Target::CommandList);
        let (mut terminals, mut recapture) = (Vec::new(), None);
        let (graph, into_graph) = match target {
            Target::NewGraph | Target::CommandList => (self.create_graph(), false),
            Target::Graph(graph, edges) => {
                terminals = edges;
                (graph, true)
            }
            Target::SameGraph(graph, again) => {
                self.release_objects(graph)?;
                recapture = Some(again);
                (graph, true)
            }
        };
        let older_nodes = match &recapture {
            Some(_) => 0,
            None => self.graphs.graphs.get(graph)?.nodes.len(),
        };
        let id = self.fresh_id();
        let members = vec![stream];
        let capture = Capture {
            graph,
            mode,
            origin: stream,
            thread,
            valid: true,
            into_graph,
            members,
            older_nodes,
            recapture,
            is_graphics,
        };
        self.captures.active.insert(id, capture);
        self.streams.get_mut(stream)?.capture = Some(Member { capture: id, terminals });
        Ok(())
    }

    /// Ends a capture. Returns its graph, or the reason why it has none. The capture ends in any
    /// case, unless the call names the wrong stream.
    pub fn end_capture(&mut self, stream: Handle, thread: u32) -> Outcome<Handle> {
        let id = self.capture_of(stream).ok_or(Code::ILLEGAL_STATE)?;
        let capture = &self.captures.active[&id];
        if capture.is_graphics {
            return Err(Code::INVALID_VALUE);
        }
        if capture.origin != stream {
            // Measured: a call on the wrong stream kills the capture.
            self.kill_capture(id, "cuStreamEndCapture");
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        let wrong_thread = capture.mode != RELAXED && capture.thread != thread;
        let unjoined = self.has_unjoined_work(id, stream);
        let is_short = self.lacks_nodes(id);
        let capture = self.stop_capture(id);
        let problem = match (capture.valid, unjoined) {
            // Measured: a call by the wrong thread still ends the capture.
            _ if wrong_thread => Some(Code::STREAM_CAPTURE_WRONG_THREAD),
            (false, _) => Some(Code::STREAM_CAPTURE_INVALIDATED),
            (true, _) if is_short => Some(Code::GRAPH_RECAPTURE_FAILURE),
            (true, true) => Some(Code::STREAM_CAPTURE_UNJOINED),
            (true, false) => None,
        };
        if let Some(code) = problem {
            if !capture.into_graph {
                self.destroy_graph(capture.graph)?;
            }
            return Err(code);
        }
        Ok(capture.graph)
    }

    /// Ends a capture for a command list, which the graphics API may then run.
    pub fn end_graphics_capture(&mut self, stream: Handle, thread: u32) -> Outcome {
        let id = self.capture_of(stream).ok_or(Code::INVALID_VALUE)?;
        let capture = &self.captures.active[&id];
        if !capture.is_graphics || capture.origin != stream {
            return Err(Code::INVALID_VALUE);
        }
        if capture.thread != thread {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.stop_capture(id);
        self.destroy_graph(capture.graph)?;
        if capture.valid { Ok(()) } else { Err(Code::STREAM_CAPTURE_INVALIDATED) }
    }

    /// Removes a capture. Its streams no longer record.
    fn stop_capture(&mut self, id: u64) -> Capture {
        let capture = self.captures.active.remove(&id).expect("the caller has found it");
        for member in &capture.members {
            if let Some(member) = self.streams.find_mut(*member) {
                member.capture = None;
            }
        }
        capture
    }

    /// The capture that a stream records into, dead or alive. One whose origin was destroyed
    /// is forgotten here.
    pub fn capture_of(&mut self, stream: Handle) -> Option<u64> {
        let id = self.streams.find(stream)?.capture.as_ref()?.capture;
        if self.captures.active.contains_key(&id) {
            return Some(id);
        }
        self.streams.find_mut(stream)?.capture = None;
        None
    }

    /// Adds a node for work that a capturing stream was given.
    pub fn capture_node(&mut self, stream: Handle, kind: NodeKind, early: bool) -> Outcome<Handle> {
        let id = self.capture_of(stream).ok_or(Code::ILLEGAL_STATE)?;
        let capture = &self.captures.active[&id];
        if !capture.valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        if capture.is_graphics && !kind.fits_command_list() {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let (graph, again) = (capture.graph, capture.recapture.is_some());
        let member = self.streams.get_mut(stream)?.capture.as_mut().expect("it captures");
        let mut before = std::mem::take(&mut member.terminals);
        if early && before.len() == 1 && self.graphs.is_kernel(before[0].node) {
            before[0].programmatic = true;
        }
        let node = match again {
            true => self.capture_again(id, kind, &before)?,
            false => self.graphs.add_node(graph, kind, before)?,
        };
        self.graphs.nodes.get_mut(node)?.to_be_joined = true;
        let member = self.streams.get_mut(stream)?.capture.as_mut().expect("it captures");
        member.terminals = vec![Edge::full(node)];
        Ok(node)
    }

    /// Sets the predecessors of the next node of a stream, as the program requests.
    pub fn update_terminals(&mut self, stream: Handle, edges: Vec<Edge>, set: bool) -> Outcome {
        let id = self.capture_of(stream).ok_or(Code::ILLEGAL_STATE)?;
        let capture = &self.captures.active[&id];
        if !capture.valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let graph = capture.graph;
        let of_graph =
            |edge: &Edge| self.graphs.nodes.find(edge.node).is_some_and(|node| node.graph == graph);
        if !edges.iter().all(of_graph) {
            return Err(Code::INVALID_VALUE);
        }
        let member = self.streams.get_mut(stream)?.capture.as_mut().ok_or(Code::ILLEGAL_STATE)?;
        let dropped = if set { std::mem::take(&mut member.terminals) } else { Vec::new() };
        for edge in &edges {
            if member.terminals.iter().all(|known| known.node != edge.node) {
                member.terminals.push(*edge);
            }
        }
        for (edges, to_be_joined) in [(dropped, false), (edges, true)] {
            for edge in edges {
                self.graphs.nodes.get_mut(edge.node)?.to_be_joined = to_be_joined;
            }
        }
        Ok(())
    }

    /// Makes a stream wait for an event, if either of them captures. Returns whether that is the
    /// case.
    pub fn capture_wait(
        &mut self,
        stream: Handle,
        event: Handle,
        name: &'static str,
    ) -> Outcome<bool> {
        let captured = self.events.get(event)?.captured.clone();
        let recorded = self.events.get(event)?.op.is_some();
        let own = self.capture_of(stream);
        let Some(Captured { capture, nodes }) = captured else {
            let Some(own) = own else { return Ok(false) };
            if recorded {
                self.kill_capture(own, name);
                return Err(Code::STREAM_CAPTURE_ISOLATION);
            }
            return Ok(true);
        };
        match self.captures.active.get_mut(&capture) {
            None => return Err(Code::CAPTURED_EVENT),
            Some(capture) if !capture.valid => return Err(Code::STREAM_CAPTURE_INVALIDATED),
            Some(_) if own.is_some_and(|own| own != capture) => {
                // Measured: both captures are invalidated.
                self.kill_capture(capture, name);
                own.iter().for_each(|own| self.kill_capture(*own, name));
                return Err(Code::STREAM_CAPTURE_MERGE);
            }
            Some(capture) if own.is_none() => capture.members.push(stream),
            Some(_) => {}
        }
        let state = self.streams.get_mut(stream)?;
        let member = state.capture.get_or_insert(Member { capture, terminals: Vec::new() });
        for node in nodes {
            if member.terminals.iter().all(|edge| edge.node != node) {
                member.terminals.push(Edge::full(node));
            }
        }
        Ok(true)
    }

    pub fn kill_capture(&mut self, id: u64, by: &str) {
        if let Some(capture) = self.captures.active.get_mut(&id)
            && capture.valid
        {
            capture.valid = false;
            self.report.problem(format!("capture killed by {by}"));
        }
    }

    /// Refuses a call that captures forbid in this thread's mode, and kills the captures concerned.
    pub fn forbid_unsafe(&mut self, thread: u32, by: &str) -> Outcome {
        let own_mode = self.threads.get(&thread).map_or(GLOBAL, |thread| thread.capture_mode);
        let concerned = |capture: &Capture| match own_mode {
            RELAXED => false,
            THREAD_LOCAL => capture.thread == thread && capture.mode != RELAXED,
            _ if capture.thread == thread => capture.mode != RELAXED,
            _ => capture.mode == GLOBAL,
        };
        self.kill_where(|_, capture| concerned(capture), by)
    }

    /// Refuses a call that concerns a whole context while one of its streams captures, in any mode
    /// and thread.
    pub fn forbid_in_context(&mut self, context: Handle, by: &str) -> Outcome {
        self.kill_where(
            |world, capture| {
                let of_context = |stream: &Handle| {
                    world.streams.find(*stream).is_some_and(|stream| stream.context == context)
                };
                capture.members.iter().any(of_context)
            },
            by,
        )
    }

    /// Captures of streams for which the legacy stream would have to wait.
    pub fn legacy_meets_capture(&self, stream: Handle) -> Vec<u64> {
        let Some(state) = self.streams.find(stream) else { return Vec::new() };
        if state.kind != StreamKind::Legacy {
            return Vec::new();
        }
        let blocking = |stream: &Handle| {
            let member = self.streams.find(*stream);
            member.is_some_and(|member| member.context == state.context && !member.non_blocking)
        };
        let active = self.captures.active.iter();
        active.filter(|(_, c)| c.members.iter().any(blocking)).map(|(id, _)| *id).collect()
    }

    fn kill_where(&mut self, concerned: impl Fn(&World, &Capture) -> bool, by: &str) -> Outcome {
        let active = self.captures.active.iter();
        let concerned: Vec<u64> =
            active.filter(|(_, capture)| concerned(self, capture)).map(|(id, _)| *id).collect();
        for id in &concerned {
            self.kill_capture(*id, by);
        }
        if concerned.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Whether some captured node is neither a terminal of the origin nor before another node.
    fn has_unjoined_work(&self, id: u64, origin: Handle) -> bool {
        let capture = &self.captures.active[&id];
        let Some(graph) = self.graphs.graphs.find(capture.graph) else { return false };
        let terminals = self.streams.find(origin).and_then(|stream| stream.capture.as_ref());
        let ends = terminals.map(|member| &member.terminals).into_iter().flatten();
        let mut used: std::collections::HashSet<Handle> = ends.map(|edge| edge.node).collect();
        for node in &graph.nodes {
            let before = self.graphs.nodes.find(*node).map(|node| &node.before);
            used.extend(before.into_iter().flatten().map(|edge| edge.node));
        }
        let to_be_joined =
            |node: &Handle| self.graphs.nodes.find(*node).is_some_and(|node| node.to_be_joined);
        let mut nodes = graph.nodes.iter().skip(capture.older_nodes);
        nodes.any(|node| !used.contains(node) && to_be_joined(node))
    }
}

//! Graphs and what is made from them: nodes and edges, executables, launches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::clock::ChainSet;
use super::handles::Slab;
use super::op::{Deps, OpRef, Work};
use super::user_object::{References, UserObject};
use super::world::{World, tag};
use crate::abi::{Code, EdgeData, Handle, Outcome};

pub struct Graphs {
    pub graphs: Slab<Graph>,
    pub nodes: Slab<Node>,
    pub executables: Slab<Executable>,
    /// The program's own references to user objects.
    pub objects: Slab<(Arc<UserObject>, u32)>,
    /// Addresses of memory nodes by graph id, with how many graphs and executables need them.
    memory: HashMap<u64, (u32, Vec<u64>)>,
}

#[derive(Default)]
pub struct Graph {
    pub id: u64,
    pub nodes: Vec<Handle>,
    pub objects: References,
    pub has_memory_nodes: bool,
    pub instantiated: u32,
}

pub struct Node {
    pub graph: Handle,
    pub kind: NodeKind,
    pub before: Vec<Edge>,
    /// In a clone: the node it was made from.
    pub original: Handle,
    pub enabled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub node: Handle,
    pub programmatic: bool,
}

#[derive(Clone)]
pub enum NodeKind {
    Empty,
    Work(Work),
    EventRecord(Handle),
    EventWait(Handle),
    Child(Handle),
    Alloc { address: u64, bytes: u64 },
    Free { address: u64 },
}

pub struct Executable {
    pub id: u64,
    pub steps: Vec<Step>,
    pub flags: u64,
    objects: Arc<Vec<Arc<UserObject>>>,
    graph: u64,
    chains: ChainSet,
    last: Option<OpRef>,
}

/// A node in an order in which it can be submitted; children are unfolded.
pub struct Step {
    pub kind: NodeKind,
    pub before: Vec<(usize, bool)>,
    pub origin: Handle,
    pub enabled: bool,
}

impl Default for Graphs {
    fn default() -> Graphs {
        Graphs {
            graphs: Slab::new(tag::GRAPH),
            nodes: Slab::new(tag::NODE),
            executables: Slab::new(tag::EXECUTABLE),
            objects: Slab::new(tag::USER_OBJECT),
            memory: HashMap::new(),
        }
    }
}

impl Edge {
    pub fn full(node: Handle) -> Edge {
        Edge { node, programmatic: false }
    }

    pub fn new(node: Handle, data: Option<&EdgeData>) -> Edge {
        Edge { node, programmatic: data.is_some_and(|data| data.bytes[2] == 1) }
    }

    pub fn data(&self) -> EdgeData {
        let one = u8::from(self.programmatic);
        EdgeData { bytes: [one, 0, one, 0, 0, 0, 0, 0] }
    }
}

impl NodeKind {
    pub fn type_number(&self) -> u32 {
        match self {
            NodeKind::Work(Work::Kernel(_)) => 0,
            NodeKind::Work(Work::Copy(_)) => 1,
            NodeKind::Work(Work::Fill(_)) => 2,
            NodeKind::Work(Work::Host(_)) => 3,
            NodeKind::Child(_) => 4,
            NodeKind::Empty => 5,
            NodeKind::EventWait(_) => 6,
            NodeKind::EventRecord(_) => 7,
            NodeKind::Alloc { .. } => 10,
            NodeKind::Free { .. } => 11,
            NodeKind::Work(_) => 12,
        }
    }
}

impl Graphs {
    pub fn is_kernel(&self, node: Handle) -> bool {
        self.nodes.find(node).is_some_and(|node| node.kind.type_number() == 0)
    }

    pub fn add_node(
        &mut self,
        graph: Handle,
        kind: NodeKind,
        before: Vec<Edge>,
    ) -> Outcome<Handle> {
        for edge in &before {
            if self.nodes.find(edge.node).is_none_or(|node| node.graph != graph) {
                return Err(Code::INVALID_VALUE);
            }
        }
        let state = self.graphs.find_mut(graph).ok_or(Code::INVALID_VALUE)?;
        if let NodeKind::Alloc { address, .. } = kind {
            self.memory.entry(state.id).or_insert((1, Vec::new())).1.push(address);
        }
        state.has_memory_nodes |= matches!(kind, NodeKind::Alloc { .. } | NodeKind::Free { .. });
        let node = self.nodes.insert(Node { graph, kind, before, original: 0, enabled: true });
        self.graphs.get_mut(graph)?.nodes.push(node);
        Ok(node)
    }

    pub fn dependents(&self, node: Handle) -> Vec<Edge> {
        let Some(graph) = self.nodes.find(node).and_then(|n| self.graphs.find(n.graph)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for later in &graph.nodes {
            let before = self.nodes.find(*later).map(|node| &node.before);
            let edge = before.into_iter().flatten().find(|edge| edge.node == node);
            found.extend(edge.map(|edge| Edge { node: *later, ..*edge }));
        }
        found
    }
}

impl World {
    pub fn create_graph(&mut self) -> Handle {
        let id = self.fresh_id();
        self.graphs.graphs.insert(Graph { id, ..Graph::default() })
    }

    pub fn destroy_graph(&mut self, graph: Handle) -> Outcome {
        let state = self.graphs.graphs.remove(graph).ok_or(Code::INVALID_VALUE)?;
        for node in state.nodes {
            if let Some(Node { kind: NodeKind::Child(child), .. }) = self.graphs.nodes.remove(node)
            {
                self.destroy_graph(child)?;
            }
        }
        self.drop_graph_memory(state.id);
        Ok(())
    }

    pub fn clone_graph(&mut self, graph: Handle) -> Outcome<Handle> {
        let state = self.graphs.graphs.find(graph).ok_or(Code::INVALID_VALUE)?;
        if state.has_memory_nodes {
            return Err(Code::NOT_SUPPORTED);
        }
        let (nodes, objects) = (state.nodes.clone(), state.objects.copied());
        let copy = self.create_graph();
        self.graphs.graphs.get_mut(copy)?.objects = objects;
        let mut twins = HashMap::new();
        for node in &nodes {
            let kind = match self.graphs.nodes.get(*node)?.kind.clone() {
                NodeKind::Child(child) => NodeKind::Child(self.clone_graph(child)?),
                kind => kind,
            };
            let twin = self.graphs.add_node(copy, kind, Vec::new())?;
            self.graphs.nodes.get_mut(twin)?.original = *node;
            twins.insert(*node, twin);
        }
        for node in &nodes {
            let before = self.graphs.nodes.get(*node)?.before.iter();
            let before = before.map(|edge| Edge { node: twins[&edge.node], ..*edge }).collect();
            self.graphs.nodes.get_mut(twins[node])?.before = before;
        }
        Ok(copy)
    }

    pub fn instantiate(&mut self, graph: Handle, flags: u64) -> Outcome<Handle> {
        let state = self.graphs.graphs.find(graph).ok_or(Code::INVALID_VALUE)?;
        if state.has_memory_nodes && state.instantiated > 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let (graph_id, objects) = (state.id, Arc::new(state.objects.objects()));
        let mut steps = Vec::new();
        self.unfold(graph, &mut steps, None)?;
        self.graphs.graphs.get_mut(graph)?.instantiated += 1;
        if let Some((users, _)) = self.graphs.memory.get_mut(&graph_id) {
            *users += 1;
        }
        let id = self.fresh_id();
        let chains = ChainSet::default();
        let executable =
            Executable { id, steps, flags, objects, graph: graph_id, chains, last: None };
        Ok(self.graphs.executables.insert(executable))
    }

    pub fn destroy_executable(&mut self, executable: Handle) -> Outcome {
        let state = self.graphs.executables.remove(executable).ok_or(Code::INVALID_VALUE)?;
        self.chains.retire(&state.chains);
        let id = state.graph;
        if let Some(graph) = self.graphs.graphs.values_mut().find(|graph| graph.id == id) {
            graph.instantiated -= 1;
        }
        self.drop_graph_memory(state.graph);
        Ok(())
    }

    /// Submits every node; the stream goes on when all are complete.
    pub fn launch_graph(&mut self, executable: Handle, stream: Handle, at: u64) -> Outcome {
        let mut entry_deps = self.stream_deps(stream)?;
        let state = self.graphs.executables.find(executable).ok_or(Code::INVALID_VALUE)?;
        state.last.iter().for_each(|last| entry_deps.after(last));
        let (chains, objects) = (state.chains.clone(), state.objects.clone());
        let steps: Vec<_> =
            state.steps.iter().map(|s| (s.kind.clone(), s.before.clone(), s.enabled)).collect();
        let entry = self.submit_after(stream, Work::Marker, entry_deps, at)?;
        let place = (self.streams.get(stream)?.ctx, self.streams.get(stream)?.id);
        let mut ops: Vec<OpRef> = Vec::with_capacity(steps.len());
        for (kind, before, enabled) in steps {
            let mut deps = Deps::default();
            deps.after(&entry);
            for (index, programmatic) in before {
                if programmatic {
                    deps.after_start(&ops[index]);
                } else {
                    deps.after(&ops[index]);
                }
            }
            let recorded_by = match kind {
                NodeKind::EventRecord(event) => Some(event),
                _ => None,
            };
            let work = match kind {
                NodeKind::Work(work) if enabled => work,
                NodeKind::EventWait(event) => {
                    let recorded = self.events.find(event).and_then(|event| event.op.clone());
                    recorded.iter().for_each(|op| deps.after(op));
                    Work::Marker
                }
                _ => Work::Marker,
            };
            let op = self.submit_op(work, place, chains.clone(), deps, at);
            if let Some(event) = recorded_by.and_then(|event| self.events.find_mut(event)) {
                event.op = Some(op.clone());
            }
            ops.push(op);
        }
        let mut deps = self.stream_deps(stream)?;
        ops.iter().for_each(|op| deps.after(op));
        let end = self.submit_after(stream, Work::Marker, deps, at)?;
        end.state().keep = Some(objects);
        self.graphs.executables.get_mut(executable)?.last = Some(end);
        Ok(())
    }

    /// Appends a graph's nodes in an order that respects its edges; children are put in place
    /// between two empty steps. Answers with the number of the step that ends the graph.
    fn unfold(
        &self,
        graph: Handle,
        steps: &mut Vec<Step>,
        entry: Option<usize>,
    ) -> Outcome<Vec<usize>> {
        let nodes = &self.graphs.graphs.get(graph)?.nodes;
        let mut ends: HashMap<Handle, usize> = HashMap::new();
        let mut followed = HashSet::new();
        let mut left: Vec<Handle> = nodes.clone();
        while !left.is_empty() {
            let ready = |node: &Handle| {
                let before = self.graphs.nodes.find(*node).map(|node| &node.before);
                before.into_iter().flatten().all(|edge| ends.contains_key(&edge.node))
            };
            let (now, later): (Vec<Handle>, Vec<Handle>) =
                left.iter().partition(|node| ready(node));
            if now.is_empty() {
                return Err(Code::INVALID_VALUE);
            }
            for handle in now {
                let node = self.graphs.nodes.get(handle)?;
                let edges = node.before.iter().map(|edge| (ends[&edge.node], edge.programmatic));
                let mut before: Vec<_> = edges.collect();
                followed.extend(before.iter().map(|(index, _)| *index));
                if before.is_empty() {
                    before.extend(entry.map(|entry| (entry, false)));
                }
                let (origin, enabled) = (handle, node.enabled);
                let kind = match &node.kind {
                    NodeKind::Child(_) => NodeKind::Empty,
                    kind => kind.clone(),
                };
                steps.push(Step { kind, before, origin, enabled });
                if let NodeKind::Child(child) = node.kind {
                    let first = steps.len() - 1;
                    let last = self.unfold(child, steps, Some(first))?;
                    let mut before: Vec<_> = last.into_iter().map(|index| (index, false)).collect();
                    before.push((first, false));
                    steps.push(Step { kind: NodeKind::Empty, before, origin: 0, enabled });
                }
                ends.insert(handle, steps.len() - 1);
            }
            left = later;
        }
        Ok(ends.into_values().filter(|index| !followed.contains(index)).collect())
    }

    fn drop_graph_memory(&mut self, graph: u64) {
        let Some((users, addresses)) = self.graphs.memory.get_mut(&graph) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        let addresses = std::mem::take(addresses);
        self.graphs.memory.remove(&graph);
        for address in addresses {
            self.discard(address);
        }
    }
}

//! Executable graphs: what a graph becomes when it is instantiated, and its launches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::graph::NodeKind;
use super::user_object::UserObject;
use crate::abi::{Code, Handle, Outcome};
use crate::model::races::clock::ChainSet;
use crate::model::work::op::{Deps, OpRef, Work};
use crate::model::world::World;

pub struct Executable {
    pub id: u64,
    pub steps: Vec<Step>,
    pub flags: u64,
    pub objects: Arc<Vec<Arc<UserObject>>>,
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

impl World {
    pub fn instantiate(&mut self, graph: Handle, flags: u64) -> Outcome<Handle> {
        let state = self.graphs.graphs.find(graph).ok_or(Code::INVALID_VALUE)?;
        if state.has_memory_nodes && state.instantiated > 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let (graph_id, objects) = (state.id, Arc::new(self.objects_of(graph)?));
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

    /// User objects that a graph and the graphs inside it keep alive.
    fn objects_of(&self, graph: Handle) -> Outcome<Vec<Arc<UserObject>>> {
        let state = self.graphs.graphs.get(graph)?;
        let mut objects = state.objects.objects();
        let nodes = state.nodes.iter().filter_map(|node| self.graphs.nodes.find(*node));
        for inner in nodes.filter_map(|node| node.kind.inner()) {
            objects.extend(self.objects_of(inner)?);
        }
        Ok(objects)
    }

    /// Submits every node; the stream continues when all are complete.
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
            match kind {
                NodeKind::Alloc { address, .. } => _ = self.graphs.allocated.insert(address),
                NodeKind::Free { address } => _ = self.graphs.allocated.remove(&address),
                _ => {}
            }
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
        let state = self.graphs.executables.get_mut(executable)?;
        if let Some((users, _)) = self.graphs.memory.get_mut(&state.graph) {
            *users += 1;
            end.state().ends_launch_of = Some(state.graph);
        }
        state.last = Some(end);
        Ok(())
    }

    /// Appends a graph's nodes in an order that respects its edges; child graphs are inlined
    /// between two empty steps. Returns the number of the step that ends the graph.
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
            let mut later = Vec::new();
            let count = left.len();
            for handle in left {
                let node = self.graphs.nodes.get(handle)?;
                if node.before.iter().any(|edge| !ends.contains_key(&edge.node)) {
                    later.push(handle);
                    continue;
                }
                let edges = node.before.iter().map(|edge| (ends[&edge.node], edge.programmatic));
                let mut before: Vec<_> = edges.collect();
                followed.extend(before.iter().map(|(index, _)| *index));
                if before.is_empty() {
                    before.extend(entry.map(|entry| (entry, false)));
                }
                self.unfold_node(handle, before, steps)?;
                ends.insert(handle, steps.len() - 1);
            }
            if later.len() == count {
                return Err(Code::INVALID_VALUE);
            }
            left = later;
        }
        Ok(ends.into_values().filter(|index| !followed.contains(index)).collect())
    }

    fn unfold_node(
        &self,
        handle: Handle,
        before: Vec<(usize, bool)>,
        steps: &mut Vec<Step>,
    ) -> Outcome {
        let node = self.graphs.nodes.get(handle)?;
        let (origin, enabled) = (handle, node.enabled);
        let inner = match node.kind {
            NodeKind::Conditional { runs: false, .. } => None,
            ref kind => kind.inner(),
        };
        let mut kind =
            if node.kind.inner().is_some() { NodeKind::Empty } else { node.kind.clone() };
        let mut before = before;
        if let NodeKind::Sequence { works, .. } = kind {
            for work in works {
                let kind = NodeKind::Work(work);
                steps.push(Step { kind, before, origin, enabled });
                before = vec![(steps.len() - 1, false)];
            }
            kind = NodeKind::Empty;
        }
        steps.push(Step { kind, before, origin, enabled });
        if let Some(inner) = inner {
            let first = steps.len() - 1;
            let last = self.unfold(inner, steps, Some(first))?;
            let mut before: Vec<_> = last.into_iter().map(|index| (index, false)).collect();
            before.push((first, false));
            steps.push(Step { kind: NodeKind::Empty, before, origin: 0, enabled });
        }
        Ok(())
    }
}

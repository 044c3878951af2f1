//! Graphs as data: nodes and edges. See `executable.rs` for instantiated graphs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::executable::Executable;
use super::user_object::{References, UserObject};
use crate::abi::{Code, EdgeData, Handle, Outcome};
use crate::model::handles::Slab;
use crate::model::memory::allocations::Kind;
use crate::model::memory::space::PAGE_BYTES;
use crate::model::work::op::Work;
use crate::model::world::{World, config, tag};

pub struct Graphs {
    pub graphs: Slab<Graph>,
    pub nodes: Slab<Node>,
    pub executables: Slab<Executable>,
    /// The program's own references to user objects.
    pub objects: Slab<(Arc<UserObject>, u32)>,
    /// Conditions by handle, and whether each holds from the start.
    pub conditions: HashMap<u64, bool>,
    /// Addresses of memory nodes by graph id, with the number of graphs, executables and launches
    /// that need them.
    pub memory: HashMap<u64, (u32, Vec<u64>)>,
    /// The addresses among these that a launch has allocated and nothing has freed: they outlive
    /// their graph.
    pub allocated: HashSet<u64>,
    /// With `SIM_GRAPH_MEMORY_LATE`: addresses that have no memory yet.
    pub unbacked: HashSet<u64>,
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
    /// In a clone, the node that this one was copied from.
    pub original: Handle,
    pub enabled: bool,
    /// Whether a capture that ends without a successor of this node has failed to join its streams.
    /// Not set for a node that the program added, or removed from a stream's terminals, by hand.
    pub to_be_joined: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub node: Handle,
    pub programmatic: bool,
}

#[derive(Clone, PartialEq)]
pub enum NodeKind {
    Empty,
    Work(Work),
    /// Several pieces of work, one after the other.
    Sequence {
        number: u32,
        works: Vec<Work>,
    },
    EventRecord(Handle),
    EventWait(Handle),
    Child(Handle),
    /// A graph that runs once, or not at all: conditions that kernels set are not modelled.
    Conditional {
        body: Handle,
        runs: bool,
    },
    Alloc {
        address: u64,
        bytes: u64,
    },
    Free {
        address: u64,
    },
}

impl Default for Graphs {
    fn default() -> Graphs {
        Graphs {
            graphs: Slab::new(tag::GRAPH),
            nodes: Slab::new(tag::NODE),
            executables: Slab::new(tag::EXECUTABLE),
            objects: Slab::new(tag::USER_OBJECT),
            conditions: HashMap::new(),
            memory: HashMap::new(),
            allocated: HashSet::new(),
            unbacked: HashSet::new(),
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
    /// `CUgraphNodeType` of signals and waits of semaphores, and of batches of memory operations.
    pub const SIGNAL: u32 = 8;
    pub const WAIT: u32 = 9;
    pub const MEMORY_OPERATIONS: u32 = 12;

    /// The graph inside a node, which the node owns.
    pub fn inner(&self) -> Option<Handle> {
        match self {
            NodeKind::Child(graph) | NodeKind::Conditional { body: graph, .. } => Some(*graph),
            _ => None,
        }
    }

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
            NodeKind::Work(_) => NodeKind::MEMORY_OPERATIONS,
            NodeKind::Sequence { number, .. } => *number,
            NodeKind::Conditional { .. } => 13,
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
        let node = self.nodes.insert(Node {
            graph,
            kind,
            before,
            original: 0,
            enabled: true,
            to_be_joined: false,
        });
        self.graphs.get_mut(graph)?.nodes.push(node);
        Ok(node)
    }

    /// Frees the allocation of a memory node for the program. Returns `false` if the graph is gone:
    /// the memory is then freed like any other.
    pub fn free_in_graph(&mut self, address: u64) -> bool {
        self.allocated.remove(&address);
        self.memory.values().any(|(_, addresses)| addresses.contains(&address))
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
            if let Some(inner) = self.graphs.nodes.remove(node).and_then(|node| node.kind.inner()) {
                self.destroy_graph(inner)?;
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
                NodeKind::Conditional { body, runs } => {
                    NodeKind::Conditional { body: self.clone_graph(body)?, runs }
                }
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

    /// Allocates the address of a memory node, with its memory unless that comes with the first
    /// launch or upload.
    pub fn alloc_graph_memory(&mut self, bytes: u64, device: usize) -> Outcome<u64> {
        if !config().graph_memory_is_late || bytes < PAGE_BYTES {
            return self.memory.alloc(bytes, Kind::Graph, 0, device);
        }
        let address = self.memory.devices[device].alloc_addresses(bytes);
        let address = address.ok_or(Code::OUT_OF_MEMORY)?;
        self.memory.insert(address, bytes, Kind::Graph, 0, device);
        self.graphs.unbacked.insert(address);
        Ok(address)
    }

    /// Allocates the memory of these nodes. Measured: the memory that a graph has got before the
    /// device is full is lost.
    pub fn back_graph_memory(&mut self, nodes: &[u64]) -> Outcome {
        let unbacked = &self.graphs.unbacked;
        let missing: Vec<u64> =
            nodes.iter().filter(|address| unbacked.contains(address)).copied().collect();
        for address in &missing {
            let Some(node) = self.memory.at_base(*address) else { continue };
            let (bytes, device) = (node.bytes, node.device);
            let space = &mut self.memory.devices[device];
            if !space.take_pages(bytes) {
                space.take_pages(space.bytes_free());
                return Err(Code::OUT_OF_MEMORY);
            }
        }
        missing.iter().for_each(|address| _ = self.graphs.unbacked.remove(address));
        Ok(())
    }

    pub fn drop_graph_memory(&mut self, graph: u64) {
        let Some((users, addresses)) = self.graphs.memory.get_mut(&graph) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        let addresses = std::mem::take(addresses);
        self.graphs.memory.remove(&graph);
        for address in addresses {
            if !self.graphs.allocated.remove(&address) {
                self.discard(address);
            }
        }
    }
}

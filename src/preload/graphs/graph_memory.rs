//! Memory of graphs: their memory nodes get it from the driver at the first launch or upload.
//!
//! A graph that finds the device too full keeps what it got by then permanently, and no
//! trim returns that (measured on driver 580, without the library too). So the library releases
//! memory before the launch, or before the upload at its instantiation, not after a failure.
//!
//! Snapshots show the nodes of each executable graph, from its instantiation to its end: before
//! that they are no memory, and their graph may end before it. The origin of each node is recorded
//! with the graph that it is added to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_history::{Block, BlockState, PoolKind, Segment, StackId};

use crate::driver::api;
use crate::driver::sys::{CuResult, GraphHandle, NODE_GRAPH, NODE_MEM_ALLOC};
use crate::handle_table::HandleTable;
use crate::memory_hooks::other_memory::Observed;
use crate::record;
use crate::state::contexts;

/// Memory that an executable graph needs, and whether the driver has provided it.
#[derive(Clone, PartialEq)]
struct Need {
    backed: bool,
    /// Unique number of this executable graph: handles are reused.
    number: u64,
    nodes: Arc<[MemoryNode]>,
}

/// One node that allocates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MemoryNode {
    pub address: u64,
    pub bytes: u64,
    pub device: i32,
    pub stack: StackId,
}

/// Executable graphs with memory nodes.
static NEEDS: HandleTable<Need> = HandleTable::new();
/// Stacks of the calls that added the memory nodes of each graph, by the nodes' addresses.
static STACKS: HandleTable<BTreeMap<u64, StackId>> = HandleTable::new();
/// Bytes of the memory nodes that memory hooks were notified of, and the notification, by address.
static OBSERVED: HandleTable<(u64, Observed)> = HandleTable::new();

/// Margin, because the driver rounds sizes up.
const SLACK_BYTES: u64 = 64 << 20;

/// Returns whether any executable graph has memory nodes.
#[inline]
pub(crate) fn any() -> bool {
    !NEEDS.is_empty()
}

/// Notes an executable graph that was made.
pub(crate) fn instantiated(executable: usize, graph: GraphHandle) {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let mut nodes = Vec::new();
    add_nodes_of(graph, &mut nodes);
    let needs_none = nodes.is_empty();
    if needs_none && !any() {
        return;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let need = Need { backed: false, number, nodes: nodes.into() };
    NEEDS.with(|needs| match needs_none {
        true => needs.given.remove(&executable),
        false => needs.given.insert(executable, need),
    });
}

/// Notes that a node that allocates was added to this graph, which may be one that a stream
/// captures into.
pub(crate) fn added(graph: GraphHandle, address: u64, stack: StackId) {
    if !stack.is_none() {
        STACKS.with(|stacks| {
            stacks.given.entry(graph).or_default().insert(address, stack);
        });
    }
}

/// Notes that memory hooks were notified of the node with this address.
pub(crate) fn observe(address: u64, bytes: u64, observed: Observed) {
    OBSERVED.enter(address as usize, (bytes, observed));
}

/// Returns the bytes of the node with this address, and the notification of memory hooks.
pub(crate) fn observed(address: u64) -> Option<(u64, Observed)> {
    OBSERVED.read(|all| all.given.get(&(address as usize)).copied())
}

/// Forgets a node whose end memory hooks were notified of. They are not notified of what a launch
/// allocates there again.
pub(crate) fn forget_observed(address: u64) {
    OBSERVED.with(|all| all.given.remove(&(address as usize)));
}

/// Runs the driver's call that destroys a graph, whose executables live on.
pub(crate) fn graph_end_by(graph: GraphHandle, call: impl FnOnce() -> CuResult) -> CuResult {
    if STACKS.is_empty() { call() } else { STACKS.end_by(graph, call) }
}

/// Forgets the recorded stacks.
pub(crate) fn forget_stacks() {
    STACKS.with(|stacks| stacks.given.clear());
    let unknown = |node: &MemoryNode| MemoryNode { stack: StackId::NONE, ..*node };
    NEEDS.with(|needs| {
        let needs = needs.given.values_mut();
        needs.for_each(|need| need.nodes = need.nodes.iter().map(unknown).collect());
    });
}

/// Returns the memory nodes of all executable graphs, each with the number of its graph, by device
/// and address. If nodes overlap (nodes of one graph may take turns), it returns the largest that
/// begins first.
pub(crate) fn nodes() -> Vec<(u64, MemoryNode)> {
    const SPARE: usize = 100;
    let count = NEEDS.read(|needs| needs.given.len());
    // Before the lock: if there is no memory the writer fails, and must hold no lock then.
    let mut needs: Vec<(u64, Arc<[MemoryNode]>)> = Vec::with_capacity(count + SPARE);
    NEEDS.read(|all| {
        let all = all.given.values().map(|need| (need.number, need.nodes.clone()));
        needs.extend(all.take(count + SPARE));
    });
    let of_graph = |(number, nodes): &(u64, Arc<[MemoryNode]>)| {
        let number = *number;
        nodes.iter().map(move |node| (number, *node)).collect::<Vec<_>>()
    };
    let mut nodes: Vec<(u64, MemoryNode)> = needs.iter().flat_map(of_graph).collect();
    nodes.sort_by_key(|(_, node)| (node.device, node.address, u64::MAX - node.bytes));
    let mut end = (i32::MIN, 0);
    nodes.retain(|(_, node)| {
        let is_apart = (node.device, node.address) >= end && node.bytes != 0;
        if is_apart {
            end = (node.device, node.address.saturating_add(node.bytes));
        }
        is_apart
    });
    nodes
}

/// Returns the nodes as snapshots show them.
pub(crate) fn segments() -> impl Iterator<Item = Segment> {
    nodes().into_iter().map(|(number, node)| {
        let MemoryNode { address, bytes, device, .. } = node;
        let stack = if record::is_on_for(device) { node.stack } else { StackId::NONE };
        let state = BlockState::Allocated;
        Segment {
            device: device.max(0) as u32,
            address,
            bytes,
            stream: 0,
            kind: PoolKind::Large,
            pool_id: (number, 0),
            pool_since_ns: None,
            expandable: false,
            stack,
            blocks: vec![Block { address, bytes, requested_bytes: bytes, state, stack }],
        }
    })
}

/// Runs the driver's call that destroys the executable.
pub(crate) fn end_by(executable: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    NEEDS.end_by(executable, call)
}

/// Notes that the executable was launched or uploaded, and so has its memory.
pub(crate) fn launched(executable: usize) {
    NEEDS.with(|needs| {
        if let Some(need) = needs.given.get_mut(&executable) {
            need.backed = true;
        }
    });
}

/// Notes that the driver has released memory that no graph uses at the moment.
pub(crate) fn trimmed() {
    NEEDS.with(|needs| needs.given.values_mut().for_each(|need| need.backed = false));
}

/// Returns the devices that this executable may find too full.
pub(crate) fn lacks_room_on(executable: usize) -> Vec<i32> {
    let missing = NEEDS.read(|needs| {
        let need = needs.given.get(&executable).filter(|need| !need.backed)?;
        Some(need.nodes.clone())
    });
    too_full_for(missing.as_deref().unwrap_or_default())
}

/// Returns the devices that an executable made of this graph may find too full when it is uploaded.
pub(crate) fn graph_lacks_room_on(graph: GraphHandle) -> Vec<i32> {
    let mut nodes = Vec::new();
    add_nodes_of(graph, &mut nodes);
    too_full_for(&nodes)
}

fn too_full_for(nodes: &[MemoryNode]) -> Vec<i32> {
    let is_too_full = |(device, bytes): (i32, u64)| {
        let free_bytes = free_bytes_of(device)?;
        (free_bytes < bytes.saturating_add(SLACK_BYTES)).then_some(device)
    };
    bytes_of(nodes).into_iter().filter_map(is_too_full).collect()
}

/// Returns the free bytes of a device, or `None` if nothing is cached there.
fn free_bytes_of(device: i32) -> Option<u64> {
    let free = || api::mem_get_info().map(|(free, _)| free as u64);
    match api::ctx_get_device() {
        Ok(current) if current == device => free().ok(),
        _ => contexts::all().find(|context| context.device == device)?.enter(free).ok(),
    }
}

/// Returns the bytes of the nodes on each device: too much if nodes share memory.
fn bytes_of(nodes: &[MemoryNode]) -> BTreeMap<i32, u64> {
    let mut bytes = BTreeMap::new();
    for node in nodes {
        let sum: &mut u64 = bytes.entry(node.device).or_default();
        *sum = sum.saturating_add(node.bytes);
    }
    bytes
}

fn add_nodes_of(graph: GraphHandle, nodes: &mut Vec<MemoryNode>) {
    for node in api::graph_get_nodes(graph).unwrap_or_default() {
        match api::graph_node_get_type(node) {
            Ok(NODE_MEM_ALLOC) => {
                let Some((device, bytes, address)) = api::graph_mem_alloc_node(node) else {
                    continue;
                };
                let stack = STACKS.read(|all| all.given.get(&graph)?.get(&address).copied());
                let stack = stack.unwrap_or(StackId::NONE);
                nodes.push(MemoryNode { address, bytes, device, stack });
            }
            Ok(NODE_GRAPH) => {
                api::graph_child_graph(node).into_iter().for_each(|it| add_nodes_of(it, nodes));
            }
            _ => {}
        }
    }
}

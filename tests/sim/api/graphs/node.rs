//! Nodes of graphs: adding and querying them.

use super::capture::read_edges;
use super::graph::{put_list, refuse_lossy};
use crate::abi::{
    AllocNodeParams, BatchMemOpNodeParams, Code, ConditionalNodeParams, Copy3D, DevicePtr,
    EdgeData, GraphNodeParams, Handle, HostNodeParams, KernelNodeParams, Location,
    MemsetNodeParams, Outcome, SemaphoreNodeParams,
};
use crate::api::contexts::{device, stream};
use crate::api::memory::external;
use crate::api::pointers::{In, Out};
use crate::api::work::{copy, launch};
use crate::call::Call;
use crate::model::graphs::graph::{Edge, NodeKind};
use crate::model::work::op::{FillWork, HostWork, Work};

driver! {
    fn cuGraphAddKernelNode, cuGraphAddKernelNode_v2: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: In<KernelNodeParams>
    ) |call| {
        let kind = kernel(call, params.get()?)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddMemcpyNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize, params: In<Copy3D>,
        context: Handle
    ) |call| {
        let kind = NodeKind::Work(Work::Copy(copy::deep(call, &params.get()?)?));
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddMemsetNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: In<MemsetNodeParams>, context: Handle
    ) |call| {
        let kind = fill(params.get()?);
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddHostNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: In<HostNodeParams>
    ) |call| {
        let kind = host(params.get()?)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddChildGraphNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize, child: Handle
    ) |call| {
        let kind = NodeKind::Child(call.world().clone_graph(child)?);
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddEmptyNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize
    ) |call| {
        add(call, node, graph, (before, In::at(0), count), NodeKind::Empty)
    }

    fn cuGraphAddEventRecordNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize, event: Handle
    ) |call| {
        call.world().events.get(event)?;
        add(call, node, graph, (before, In::at(0), count), NodeKind::EventRecord(event))
    }

    fn cuGraphAddEventWaitNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize, event: Handle
    ) |call| {
        call.world().events.get(event)?;
        add(call, node, graph, (before, In::at(0), count), NodeKind::EventWait(event))
    }

    fn cuGraphAddMemAllocNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: Out<AllocNodeParams>
    ) |call| {
        let mut filled = params.get()?;
        let kind = alloc(call, &mut filled)?;
        params.put(filled)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddMemFreeNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize, address: DevicePtr
    ) |call| {
        add(call, node, graph, (before, In::at(0), count), NodeKind::Free { address })
    }

    fn cuGraphAddBatchMemOpNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: In<BatchMemOpNodeParams>
    ) |call| {
        let kind = memory_operations(call, params.get()?)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddExternalSemaphoresSignalNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: In<SemaphoreNodeParams>
    ) |call| {
        let SemaphoreNodeParams { semaphores, params, count: signals } = params.get()?;
        let kind = external::signals(call, In::at(semaphores), In::at(params), signals)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddExternalSemaphoresWaitNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: In<SemaphoreNodeParams>
    ) |call| {
        let SemaphoreNodeParams { semaphores, params, count: waits } = params.get()?;
        let kind = external::waits(call, In::at(semaphores), In::at(params), waits)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddNode: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, count: usize,
        params: Out<GraphNodeParams>
    ) |call| {
        let kind = any(call, params)?;
        add(call, node, graph, (before, In::at(0), count), kind)
    }

    fn cuGraphAddNode_v2, cuGraphAddNode_v3: (
        node: Out<Handle>, graph: Handle, before: In<Handle>, data: In<EdgeData>, count: usize,
        params: Out<GraphNodeParams>
    ) |call| {
        let kind = any(call, params)?;
        add(call, node, graph, (before, data, count), kind)
    }

    fn cuGraphConditionalHandleCreate: (
        handle: Out<u64>, graph: Handle, context: Handle, value: u32, flags: u32
    ) |call| {
        call.world().graphs.graphs.find(graph).ok_or(Code::INVALID_VALUE)?;
        let id = call.world().fresh_id();
        // Without the flag, the value is undefined until a kernel sets it.
        let runs = value != 0 && flags & ASSIGN_DEFAULT != 0;
        call.world().graphs.conditions.insert(id, runs);
        handle.put(id)
    }

    fn cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2: (
        node: Handle, params: In<KernelNodeParams>
    ) |call| {
        let kind = kernel(call, params.get()?)?;
        set(call, node, kind)
    }

    fn cuGraphNodeSetParams, cuGraphNodeSetParams_v2: (
        node: Handle, params: Out<GraphNodeParams>
    ) |call| {
        let kind = any(call, params)?;
        set(call, node, kind)
    }

    fn cuGraphNodeGetType: (node: Handle, kind: Out<u32>) |call| {
        let found = call.world().graphs.nodes.find(node).ok_or(Code::INVALID_VALUE)?;
        kind.put(found.kind.type_number())
    }

    fn cuGraphNodeGetDependencies: (node: Handle, nodes: Out<Handle>, count: Out<usize>) |call| {
        let found = call.world().graphs.nodes.find(node).ok_or(Code::INVALID_VALUE)?;
        put_edges(nodes, Out::at(0), count, &found.before.clone())
    }

    fn cuGraphNodeGetDependencies_v2: (
        node: Handle, nodes: Out<Handle>, data: Out<EdgeData>, count: Out<usize>
    ) |call| {
        let found = call.world().graphs.nodes.find(node).ok_or(Code::INVALID_VALUE)?;
        put_edges(nodes, data, count, &found.before.clone())
    }

    fn cuGraphNodeGetDependentNodes: (node: Handle, nodes: Out<Handle>, count: Out<usize>) |call| {
        let later = call.world().graphs.dependents(node);
        put_edges(nodes, Out::at(0), count, &later)
    }

    fn cuGraphNodeGetDependentNodes_v2: (
        node: Handle, nodes: Out<Handle>, data: Out<EdgeData>, count: Out<usize>
    ) |call| {
        let later = call.world().graphs.dependents(node);
        put_edges(nodes, data, count, &later)
    }

    fn cuGraphNodeFindInClone: (found: Out<Handle>, original: Handle, clone: Handle) |call| {
        let graphs = &call.world().graphs;
        let nodes = &graphs.graphs.find(clone).ok_or(Code::INVALID_VALUE)?.nodes;
        let twin = |node: &&Handle| graphs.nodes.find(**node).is_some_and(|n| n.original == original);
        found.put(*nodes.iter().find(twin).ok_or(Code::INVALID_VALUE)?)
    }

    fn cuGraphChildGraphNodeGetGraph: (node: Handle, graph: Out<Handle>) |call| {
        match call.world().graphs.nodes.find(node).ok_or(Code::INVALID_VALUE)?.kind {
            NodeKind::Child(child) => graph.put(child),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuGraphMemAllocNodeGetParams: (node: Handle, params: Out<AllocNodeParams>) |call| {
        let found = call.world().graphs.nodes.find(node).ok_or(Code::INVALID_VALUE)?;
        let NodeKind::Alloc { address, bytes } = found.kind else {
            return Err(Code::INVALID_VALUE);
        };
        let device = call.world().memory.at_base(address).map_or(0, |it| it.device);
        let mut known = params.get()?;
        known.pool.location = Location::on(device);
        params.put(AllocNodeParams { bytes: bytes as usize, address, ..known })
    }

    fn cuGraphMemFreeNodeGetParams: (node: Handle, address: Out<DevicePtr>) |call| {
        match call.world().graphs.nodes.find(node).ok_or(Code::INVALID_VALUE)?.kind {
            NodeKind::Free { address: known } => address.put(known),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuGraphDestroyNode: (node: Handle) |call| {
        let world = call.world();
        let gone = world.graphs.nodes.remove(node).ok_or(Code::INVALID_VALUE)?;
        if let Some(inner) = gone.kind.inner() {
            world.destroy_graph(inner)?;
        }
        let graph = world.graphs.graphs.get_mut(gone.graph)?;
        graph.nodes.retain(|known| *known != node);
        for other in graph.nodes.clone() {
            world.graphs.nodes.get_mut(other)?.before.retain(|edge| edge.node != node);
        }
        Ok(())
    }
}

const ASSIGN_DEFAULT: u32 = 1;

type Before = (In<Handle>, In<EdgeData>, usize);

fn add(
    call: &mut Call,
    node: Out<Handle>,
    graph: Handle,
    before: Before,
    kind: NodeKind,
) -> Outcome {
    let edges = read_edges(before.0, before.1, before.2)?;
    node.put(call.world().graphs.add_node(graph, kind, edges)?)
}

/// Executables made before keep the old parameters.
fn set(call: &mut Call, node: Handle, kind: NodeKind) -> Outcome {
    let node = call.world().graphs.nodes.get_mut(node)?;
    if node.kind.type_number() != kind.type_number() {
        return Err(Code::INVALID_VALUE);
    }
    node.kind = kind;
    Ok(())
}

fn put_edges(
    nodes: Out<Handle>,
    data: Out<EdgeData>,
    count: Out<usize>,
    found: &[Edge],
) -> Outcome {
    if !nodes.is_null() {
        refuse_lossy(data, found.iter())?;
        if !data.is_null() {
            for (index, edge) in found.iter().take(count.get()?).enumerate() {
                data.put_at(index, edge.data());
            }
        }
    }
    let handles: Vec<Handle> = found.iter().map(|edge| edge.node).collect();
    put_list(nodes, count, &handles)
}

pub fn any(call: &mut Call, params: Out<GraphNodeParams>) -> Outcome<NodeKind> {
    let kind = params.get()?.kind;
    // The body follows the type and three reserved words.
    let body = params.address() + 16;
    match kind {
        0 => kernel(call, In::<KernelNodeParams>::at(body).get()?),
        // Flags, a reserved word and the context stand before the copy.
        1 => {
            let shape = In::<Copy3D>::at(body + 16).get()?;
            Ok(NodeKind::Work(Work::Copy(copy::deep(call, &shape)?)))
        }
        2 => Ok(fill(In::<MemsetNodeParams>::at(body).get()?)),
        3 => host(In::<HostNodeParams>::at(body).get()?),
        4 => {
            let child = In::<Handle>::at(body).get()?;
            Ok(NodeKind::Child(call.world().clone_graph(child)?))
        }
        5 => Ok(NodeKind::Empty),
        6 => Ok(NodeKind::EventWait(In::at(body).get()?)),
        7 => Ok(NodeKind::EventRecord(In::at(body).get()?)),
        8 | 9 => {
            let SemaphoreNodeParams { semaphores, params, count } = In::at(body).get()?;
            let (semaphores, params) = (In::at(semaphores), In::at(params));
            match kind {
                NodeKind::SIGNAL => external::signals(call, semaphores, params, count),
                _ => external::waits(call, semaphores, params, count),
            }
        }
        10 => {
            let place = Out::<AllocNodeParams>::at(body);
            let mut filled = place.get()?;
            let kind = alloc(call, &mut filled)?;
            place.put(filled)?;
            Ok(kind)
        }
        11 => Ok(NodeKind::Free { address: In::at(body).get()? }),
        12 => memory_operations(call, In::at(body).get()?),
        13 => conditional(call, Out::at(body)),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

/// Creates a node with a graph inside, which the node owns. The program may add nodes to it, or
/// capture into it, later.
fn conditional(call: &mut Call, params: Out<ConditionalNodeParams>) -> Outcome<NodeKind> {
    let known = params.get()?;
    let runs = *call.world().graphs.conditions.get(&known.handle).ok_or(Code::INVALID_VALUE)?;
    let body = call.world().create_graph();
    // The driver owns the list; here it lives as long as the process.
    let bodies = Box::leak(Box::new([body])).as_ptr();
    params.put(ConditionalNodeParams { bodies, ..known })?;
    Ok(NodeKind::Conditional { body, runs })
}

pub fn kernel(call: &mut Call, params: KernelNodeParams) -> Outcome<NodeKind> {
    let arguments = (In::at(params.params as u64), In::at(params.extra as u64));
    let launch = launch::read(call, params.function, arguments)?;
    Ok(NodeKind::Work(Work::Kernel(launch)))
}

pub fn fill(params: MemsetNodeParams) -> NodeKind {
    NodeKind::Work(Work::Fill(FillWork {
        dst: params.dst,
        pitch: params.pitch as u64,
        value: params.value,
        element_bytes: u64::from(params.element_bytes),
        width: params.width as u64,
        height: params.height.max(1) as u64,
    }))
}

pub fn host(params: HostNodeParams) -> Outcome<NodeKind> {
    let function = params.function.ok_or(Code::INVALID_VALUE)? as usize;
    let data = params.data as usize;
    Ok(NodeKind::Work(Work::Host(HostWork { function, data, callback_stream: None })))
}

fn memory_operations(call: &mut Call, params: BatchMemOpNodeParams) -> Outcome<NodeKind> {
    let works = stream::memory_operations(call, In::at(params.list), params.count)?;
    Ok(NodeKind::Sequence { number: NodeKind::MEMORY_OPERATIONS, works })
}

fn alloc(call: &mut Call, params: &mut AllocNodeParams) -> Outcome<NodeKind> {
    let device = device::of_location(params.pool.location)?;
    let bytes = params.bytes as u64;
    let address = call.world().alloc_graph_memory(bytes, device)?;
    params.address = address;
    Ok(NodeKind::Alloc { address, bytes })
}

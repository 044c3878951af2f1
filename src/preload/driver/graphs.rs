//! Calls of the real driver about captures and their graphs. As `api`: present or `NOT_FOUND`.
//!
//! Edge data are requested from a driver that has them (12.3). An older one has none; a call without
//! them that would lose some returns an error.

use core::ffi::c_void;
use core::ptr::{null, null_mut};

use cachealloc_core::order::reuse::{Edge, EdgeKind, Node};

use crate::driver::sys::{
    CAPTURE_STATUS_ACTIVE, CAPTURE_STATUS_NONE, CuResult, EdgeData, GRAPH_USER_OBJECT_MOVE,
    GraphHandle, NOT_FOUND, NodeHandle, SET_CAPTURE_DEPENDENCIES, SUCCESS, StreamHandle,
    USER_OBJECT_NO_DESTRUCTOR_SYNC,
};
use crate::driver::{api, table};
use crate::functions::id;

/// The capture that a stream is in.
#[derive(Clone, Debug)]
pub(crate) struct Capturing {
    /// The driver's number for this capture.
    pub number: u64,
    pub graph: GraphHandle,
    /// The edges into the next node of the stream.
    pub terminals: Vec<Edge>,
}

/// None: the stream does not capture, its capture is dead, or the driver cannot report it.
pub(crate) fn capturing(stream: StreamHandle) -> Option<Capturing> {
    let (mut status, mut number, mut graph, mut count) = (CAPTURE_STATUS_NONE, 0, 0, 0);
    let (mut nodes, mut data): (*const NodeHandle, *const EdgeData) = (null(), null());
    let code = if table::has(id::cuStreamGetCaptureInfo_v3) {
        let function = table::real::<
            unsafe extern "C" fn(
                StreamHandle,
                &mut u32,
                &mut u64,
                &mut GraphHandle,
                &mut *const NodeHandle,
                &mut *const EdgeData,
                &mut usize,
            ) -> CuResult,
        >(id::cuStreamGetCaptureInfo_v3);
        // SAFETY: the signature is that of the driver's header; every place is valid for the call.
        unsafe {
            function(
                stream,
                &mut status,
                &mut number,
                &mut graph,
                &mut nodes,
                &mut data,
                &mut count,
            )
        }
    } else {
        let function = table::real::<
            unsafe extern "C" fn(
                StreamHandle,
                &mut u32,
                &mut u64,
                &mut GraphHandle,
                &mut *const NodeHandle,
                &mut usize,
            ) -> CuResult,
        >(id::cuStreamGetCaptureInfo_v2);
        // SAFETY: as above.
        unsafe { function(stream, &mut status, &mut number, &mut graph, &mut nodes, &mut count) }
    };
    if code != SUCCESS || status != CAPTURE_STATUS_ACTIVE {
        return None;
    }
    // SAFETY: the driver's own arrays of this length, valid until this thread's next call about the
    // stream; it may leave out the edge data where all edges are ordinary.
    let terminals = unsafe {
        let nodes = if count == 0 { &[] } else { core::slice::from_raw_parts(nodes, count) };
        let data = (!data.is_null()).then(|| core::slice::from_raw_parts(data, count));
        edges(nodes, data)
    };
    Some(Capturing { number, graph, terminals })
}

/// Appends the edges into a node. False: the driver cannot report them.
pub(crate) fn edges_into(node: Node, answer: &mut Vec<Edge>) -> bool {
    let mut count = 0;
    if dependencies(node, None, &mut count) != SUCCESS {
        return false;
    }
    if count == 0 {
        return true;
    }
    let mut nodes: Vec<NodeHandle> = vec![0; count];
    let mut data = vec![EdgeData::default(); count];
    if dependencies(node, Some((&mut nodes, &mut data)), &mut count) != SUCCESS {
        return false;
    }
    nodes.truncate(count);
    answer.extend(edges(&nodes, Some(&data)));
    true
}

/// Sets the edges into the next node of the stream.
pub(crate) fn set_terminals(stream: StreamHandle, terminals: &[Edge]) -> CuResult {
    let nodes: Vec<NodeHandle> = terminals.iter().map(|edge| edge.from.0 as NodeHandle).collect();
    if table::has(id::cuStreamUpdateCaptureDependencies_v2) {
        let data: Option<Vec<EdgeData>> = terminals.iter().map(edge_data).collect();
        let Some(data) = data else { return NOT_FOUND };
        let function = table::real::<
            unsafe extern "C" fn(
                StreamHandle,
                *const NodeHandle,
                *const EdgeData,
                usize,
                u32,
            ) -> CuResult,
        >(id::cuStreamUpdateCaptureDependencies_v2);
        // SAFETY: the signature is that of the driver's header; both arrays have this length.
        return unsafe {
            let (nodes, data) = (nodes.as_ptr(), data.as_ptr());
            function(stream, nodes, data, terminals.len(), SET_CAPTURE_DEPENDENCIES)
        };
    }
    if terminals.iter().any(|edge| edge.kind != EdgeKind::Full) {
        return NOT_FOUND;
    }
    let function = table::real::<
        unsafe extern "C" fn(StreamHandle, *const NodeHandle, usize, u32) -> CuResult,
    >(id::cuStreamUpdateCaptureDependencies);
    // SAFETY: as above.
    unsafe { function(stream, nodes.as_ptr(), nodes.len(), SET_CAPTURE_DEPENDENCIES) }
}

/// The graph, and all that is made from it, keeps `data` alive: `gone(data)` is called, from any thread,
/// once none of them is left and all their launches are over. It may not call CUDA.
pub(crate) fn keep_with_graph(
    graph: GraphHandle,
    data: usize,
    gone: extern "C" fn(*mut c_void),
) -> CuResult {
    let mut object = 0_usize;
    let create = table::real::<
        unsafe extern "C" fn(&mut usize, usize, extern "C" fn(*mut c_void), u32, u32) -> CuResult,
    >(id::cuUserObjectCreate);
    // SAFETY: the signature is that of the driver's header; `gone` lives as long as the process.
    let code = unsafe { create(&mut object, data, gone, 1, USER_OBJECT_NO_DESTRUCTOR_SYNC) };
    if code != SUCCESS {
        return code;
    }
    let retain = table::real::<unsafe extern "C" fn(GraphHandle, usize, u32, u32) -> CuResult>(
        id::cuGraphRetainUserObject,
    );
    // SAFETY: as above; the graph is one that the driver named and that lives.
    let code = unsafe { retain(graph, object, 1, GRAPH_USER_OBJECT_MOVE) };
    if code != SUCCESS {
        let release =
            table::real::<unsafe extern "C" fn(usize, u32) -> CuResult>(id::cuUserObjectRelease);
        // SAFETY: as above; the only reference is ours still.
        unsafe { release(object, 1) };
    }
    code
}

/// Launches a graph without nodes and destroys it; `gone(data)` is called once that launch is over.
pub(crate) fn launch_empty(
    stream: StreamHandle,
    data: usize,
    gone: extern "C" fn(*mut c_void),
) -> CuResult {
    let (mut graph, mut executable) = (0, 0);
    let mut code = api::graph_create(&mut graph, 0);
    if code != SUCCESS {
        return code;
    }
    code = keep_with_graph(graph, data, gone);
    if code == SUCCESS {
        code = api::graph_instantiate(&mut executable, graph, 0);
    }
    if code == SUCCESS {
        code = api::graph_launch(executable, stream);
        api::graph_exec_destroy(executable);
    }
    api::graph_destroy(graph);
    code
}

/// Whether this driver reports what a private pool needs (11.3 and later).
pub(crate) fn has_capture_info() -> bool {
    table::has(id::cuStreamGetCaptureInfo_v2) || table::has(id::cuStreamGetCaptureInfo_v3)
}

fn dependencies(
    node: Node,
    places: Option<(&mut [NodeHandle], &mut [EdgeData])>,
    count: &mut usize,
) -> CuResult {
    let node = node.0 as NodeHandle;
    let (nodes, data) = match places {
        Some((nodes, data)) => (nodes.as_mut_ptr(), data.as_mut_ptr()),
        None => (null_mut(), null_mut()),
    };
    if table::has(id::cuGraphNodeGetDependencies_v2) {
        let function = table::real::<
            unsafe extern "C" fn(
                NodeHandle,
                *mut NodeHandle,
                *mut EdgeData,
                &mut usize,
            ) -> CuResult,
        >(id::cuGraphNodeGetDependencies_v2);
        // SAFETY: the signature is that of the driver's header; `count` is the length of both arrays.
        return unsafe { function(node, nodes, data, count) };
    }
    let function = table::real::<
        unsafe extern "C" fn(NodeHandle, *mut NodeHandle, &mut usize) -> CuResult,
    >(id::cuGraphNodeGetDependencies);
    // SAFETY: as above.
    unsafe { function(node, nodes, count) }
}

fn edges(nodes: &[NodeHandle], data: Option<&[EdgeData]>) -> Vec<Edge> {
    let kind = |index: usize| match data.and_then(|data| data.get(index)) {
        Some(EdgeData { from_port, to_port, kind, .. }) => {
            EdgeKind::from_data(*from_port, *to_port, *kind)
        }
        None => EdgeKind::Full,
    };
    let edge =
        |(index, node): (usize, &NodeHandle)| Edge { from: Node(*node as u64), kind: kind(index) };
    nodes.iter().enumerate().map(edge).collect()
}

/// The ports of an early edge are not kept: such an edge cannot be written back.
fn edge_data(edge: &Edge) -> Option<EdgeData> {
    (edge.kind == EdgeKind::Full).then(EdgeData::default)
}

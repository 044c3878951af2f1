//! Calls of the real driver about captures and their graphs. Absent functions return `NOT_FOUND`,
//! as in `api`.
//!
//! Edge data are requested from a driver that has them (12.3). An older one has none; a call that
//! would lose edge data returns an error.

use core::ffi::c_void;
use core::ptr::{null, null_mut};

use cachealloc_core::order::reuse::{Edge, EdgeKind, Node};

use crate::driver::sys::{
    CAPTURE_STATUS_ACTIVE, CAPTURE_STATUS_NONE, CuCode, CuError, CuResult, EdgeData,
    GRAPH_USER_OBJECT_MOVE, GraphHandle, NodeHandle, SET_CAPTURE_DEPENDENCIES, StreamHandle,
    USER_OBJECT_NO_DESTRUCTOR_SYNC, result,
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

/// A fingerprint of the nodes that a stream has added last, as the capture shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CaptureMark {
    number: u64,
    terminals_count: usize,
    /// A hash of the nodes' handles.
    hash: u64,
}

impl Capturing {
    /// Returns the mark. While it stays the same, the stream has added no node: a new one would be
    /// its only terminal.
    pub(crate) fn mark(&self) -> CaptureMark {
        let step = |hash: u64, edge: &Edge| (hash ^ edge.from.0).wrapping_mul(0x0100_0000_01b3);
        let hash = self.terminals.iter().fold(0xcbf2_9ce4_8422_2325, step);
        CaptureMark { number: self.number, terminals_count: self.terminals.len(), hash }
    }
}

/// Returns the capture of the stream, or `None` if the stream does not capture, its capture is
/// invalidated, or the driver cannot report it.
pub(crate) fn capturing(stream: StreamHandle) -> Option<Capturing> {
    type Info3 = unsafe extern "C" fn(
        StreamHandle,
        &mut u32,
        &mut u64,
        &mut GraphHandle,
        &mut *const NodeHandle,
        &mut *const EdgeData,
        &mut usize,
    ) -> CuCode;
    type Info2 = unsafe extern "C" fn(
        StreamHandle,
        &mut u32,
        &mut u64,
        &mut GraphHandle,
        &mut *const NodeHandle,
        &mut usize,
    ) -> CuCode;
    let (mut status, mut number, mut graph, mut count) = (CAPTURE_STATUS_NONE, 0, 0, 0);
    let (mut nodes, mut data): (*const NodeHandle, *const EdgeData) = (null(), null());
    // SAFETY: the signatures are those of the driver's header; every place is valid for the call.
    let code = unsafe {
        if table::has(id::cuStreamGetCaptureInfo_v3) {
            table::real::<Info3>(id::cuStreamGetCaptureInfo_v3)(
                stream,
                &mut status,
                &mut number,
                &mut graph,
                &mut nodes,
                &mut data,
                &mut count,
            )
        } else {
            table::real::<Info2>(id::cuStreamGetCaptureInfo_v2)(
                stream,
                &mut status,
                &mut number,
                &mut graph,
                &mut nodes,
                &mut count,
            )
        }
    };
    if result(code).is_err() || status != CAPTURE_STATUS_ACTIVE {
        return None;
    }
    // SAFETY: the driver's own arrays of this length, valid until this thread's next call about the
    // stream; it may omit the edge data if all edges are ordinary.
    let terminals = unsafe {
        let nodes = if count == 0 { &[] } else { core::slice::from_raw_parts(nodes, count) };
        let data = (!data.is_null()).then(|| core::slice::from_raw_parts(data, count));
        edges(nodes, data)
    };
    Some(Capturing { number, graph, terminals })
}

/// Appends the edges into a node. Returns `false` if the driver cannot report them.
pub(crate) fn edges_into(node: Node, answer: &mut Vec<Edge>) -> bool {
    let mut count = 0;
    if dependencies(node, None, &mut count).is_err() {
        return false;
    }
    if count == 0 {
        return true;
    }
    let mut nodes: Vec<NodeHandle> = vec![0; count];
    let mut data = vec![EdgeData::default(); count];
    if dependencies(node, Some((&mut nodes, &mut data)), &mut count).is_err() {
        return false;
    }
    nodes.truncate(count);
    answer.extend(edges(&nodes, Some(&data)));
    true
}

/// Sets the edges into the next node of the stream.
pub(crate) fn set_terminals(stream: StreamHandle, terminals: &[Edge]) -> CuResult {
    type Update2 = unsafe extern "C" fn(
        StreamHandle,
        *const NodeHandle,
        *const EdgeData,
        usize,
        u32,
    ) -> CuCode;
    type Update1 = unsafe extern "C" fn(StreamHandle, *const NodeHandle, usize, u32) -> CuCode;
    let nodes: Vec<NodeHandle> = terminals.iter().map(|edge| edge.from.0 as NodeHandle).collect();
    let data: Option<Vec<EdgeData>> = terminals.iter().map(edge_data).collect();
    let Some(data) = data else { return Err(CuError::NOT_FOUND) };
    let (first, count) = (nodes.as_ptr(), nodes.len());
    // SAFETY: the signatures are those of the driver's header; both arrays have this length.
    result(unsafe {
        if table::has(id::cuStreamUpdateCaptureDependencies_v2) {
            let update = table::real::<Update2>(id::cuStreamUpdateCaptureDependencies_v2);
            update(stream, first, data.as_ptr(), count, SET_CAPTURE_DEPENDENCIES)
        } else {
            let update = table::real::<Update1>(id::cuStreamUpdateCaptureDependencies);
            update(stream, first, count, SET_CAPTURE_DEPENDENCIES)
        }
    })
}

/// Makes the graph, and everything made from it, keep `data` alive. The driver calls `gone(data)`,
/// from any thread, once none of them is left and all their launches have completed. `gone` may not
/// call CUDA.
pub(crate) fn keep_with_graph(
    graph: GraphHandle,
    data: usize,
    gone: extern "C" fn(*mut c_void),
) -> CuResult {
    type Create =
        unsafe extern "C" fn(&mut usize, usize, extern "C" fn(*mut c_void), u32, u32) -> CuCode;
    type Retain = unsafe extern "C" fn(GraphHandle, usize, u32, u32) -> CuCode;
    type Release = unsafe extern "C" fn(usize, u32) -> CuCode;
    let mut object = 0;
    // SAFETY: the signature is that of the driver's header; `gone` lives as long as the process.
    result(unsafe {
        let create = table::real::<Create>(id::cuUserObjectCreate);
        create(&mut object, data, gone, 1, USER_OBJECT_NO_DESTRUCTOR_SYNC)
    })?;
    // SAFETY: as above; the driver returned the graph, which is alive.
    let kept = result(unsafe {
        let retain = table::real::<Retain>(id::cuGraphRetainUserObject);
        retain(graph, object, 1, GRAPH_USER_OBJECT_MOVE)
    });
    if kept.is_err() {
        // SAFETY: as above; the library still has the only reference.
        unsafe { table::real::<Release>(id::cuUserObjectRelease)(object, 1) };
    }
    kept
}

/// Launches a graph without nodes and destroys it. The driver calls `gone(data)` once that launch
/// has completed.
pub(crate) fn launch_empty(
    stream: StreamHandle,
    data: usize,
    gone: extern "C" fn(*mut c_void),
) -> CuResult {
    let graph = api::graph_create(0)?;
    let launched = keep_with_graph(graph, data, gone).and_then(|()| {
        let executable = api::graph_instantiate(graph, 0)?;
        let launched = api::graph_launch(executable, stream);
        let _ = api::graph_exec_destroy(executable);
        launched
    });
    let _ = api::graph_destroy(graph);
    launched
}

/// Destroys a graph that was never launched. The driver calls `gone(data)` once it has ended.
pub(crate) fn destroy_empty(data: usize, gone: extern "C" fn(*mut c_void)) -> CuResult {
    let graph = api::graph_create(0)?;
    let kept = keep_with_graph(graph, data, gone);
    let _ = api::graph_destroy(graph);
    kept
}

/// Returns whether this driver reports what a private pool needs (11.3 and later).
pub(crate) fn has_capture_info() -> bool {
    table::has(id::cuStreamGetCaptureInfo_v2) || table::has(id::cuStreamGetCaptureInfo_v3)
}

fn dependencies(
    node: Node,
    places: Option<(&mut [NodeHandle], &mut [EdgeData])>,
    count: &mut usize,
) -> CuResult {
    type Ask2 =
        unsafe extern "C" fn(NodeHandle, *mut NodeHandle, *mut EdgeData, &mut usize) -> CuCode;
    type Ask1 = unsafe extern "C" fn(NodeHandle, *mut NodeHandle, &mut usize) -> CuCode;
    let node = node.0 as NodeHandle;
    let (nodes, data) = match places {
        Some((nodes, data)) => (nodes.as_mut_ptr(), data.as_mut_ptr()),
        None => (null_mut(), null_mut()),
    };
    // SAFETY: the signatures are those of the driver's header; `count` is the length of both
    // arrays.
    result(unsafe {
        if table::has(id::cuGraphNodeGetDependencies_v2) {
            table::real::<Ask2>(id::cuGraphNodeGetDependencies_v2)(node, nodes, data, count)
        } else {
            table::real::<Ask1>(id::cuGraphNodeGetDependencies)(node, nodes, count)
        }
    })
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

/// Returns the driver's data of an edge. The ports of an early edge are not kept, so such an edge
/// cannot be written back.
fn edge_data(edge: &Edge) -> Option<EdgeData> {
    (edge.kind == EdgeKind::Full).then(EdgeData::default)
}

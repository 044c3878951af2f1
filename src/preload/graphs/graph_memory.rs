//! Memory of graphs: their memory nodes get it from the driver at the first launch or upload.
//!
//! A graph that finds the device too full keeps for good what it got by then, and no trim returns that
//! (measured on driver 580, natively too). So room is made before the launch, not after it has failed.

use crate::books::Book;
use crate::driver::api;
use crate::driver::sys::{CuResult, GraphHandle, NODE_GRAPH, NODE_MEM_ALLOC, NodeHandle};

/// What an executable graph needs, and whether the driver has provided it.
#[derive(Clone, Copy, PartialEq)]
struct Need {
    bytes: u64,
    backed: bool,
}

/// Executable graphs with memory nodes.
static NEEDS: Book<Need> = Book::new();

/// The driver rounds sizes up.
const SLACK_BYTES: u64 = 64 << 20;

/// Whether any executable graph has memory nodes.
#[inline]
pub(crate) fn any() -> bool {
    !NEEDS.is_empty()
}

/// An executable graph was made.
pub(crate) fn instantiated(executable: usize, graph: GraphHandle) {
    let bytes = bytes_of(graph);
    if bytes == 0 && !any() {
        return;
    }
    NEEDS.with(|needs| match bytes {
        0 => needs.given.remove(&executable),
        _ => needs.given.insert(executable, Need { bytes, backed: false }),
    });
}

/// Runs the driver's call that destroys it.
pub(crate) fn end_by(executable: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    NEEDS.end_by(executable, call)
}

/// It was launched or uploaded, so it has its memory.
pub(crate) fn launched(executable: usize) {
    NEEDS.with(|needs| {
        if let Some(need) = needs.given.get_mut(&executable) {
            need.backed = true;
        }
    });
}

/// The driver took back what no graph uses at the moment.
pub(crate) fn trimmed() {
    NEEDS.with(|needs| needs.given.values_mut().for_each(|need| need.backed = false));
}

/// Whether this graph may find the device too full.
pub(crate) fn lacks_room(executable: usize) -> bool {
    let bytes = match NEEDS.read(|needs| needs.given.get(&executable).copied()) {
        Some(Need { bytes, backed: false }) => bytes,
        _ => return false,
    };
    api::mem_get_info().is_ok_and(|(free, _)| (free as u64) < bytes.saturating_add(SLACK_BYTES))
}

/// The sum over all memory nodes: too much if nodes share memory.
fn bytes_of(graph: GraphHandle) -> u64 {
    let nodes = api::graph_get_nodes(graph).unwrap_or_default();
    nodes.iter().map(|node| bytes_of_node(*node)).fold(0, u64::saturating_add)
}

fn bytes_of_node(node: NodeHandle) -> u64 {
    match api::graph_node_get_type(node) {
        Ok(NODE_MEM_ALLOC) => api::graph_mem_alloc_node_bytes(node).unwrap_or(0),
        Ok(NODE_GRAPH) => api::graph_child_graph(node).map_or(0, bytes_of),
        _ => 0,
    }
}

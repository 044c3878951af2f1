//! Graph functions that no other program needs, by their symbols.

use std::ffi::c_void;

use super::Driver;

pub type Outcome<T = ()> = Result<T, i32>;
pub type Edge = [u8; 8];

pub const FULL: Edge = [0; 8];
pub const ADD: u32 = 0;
pub const SET: u32 = 1;

/// A function of this signature.
macro_rules! function {
    ($driver:expr, $symbol:literal ($($argument:ty),*)) => {{
        let found = $driver.resolver.symbol($symbol).expect($symbol);
        // SAFETY: the driver's documentation gives this symbol this signature.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> i32>(found)
        }
    }};
}

fn check(code: i32) -> Outcome {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Returns the graph and the terminals of a capture, with the data of their edges.
pub fn terminals(d: &Driver, stream: u64) -> Outcome<(u64, Vec<(u64, Edge)>)> {
    let (mut status, mut id, mut graph, mut count) = (0, 0, 0, 0);
    let (mut nodes, mut edges) = (std::ptr::null(), std::ptr::null());
    let info = function!(d, "cuStreamGetCaptureInfo_v3"(
        u64, *mut u32, *mut u64, *mut u64, *mut *const u64, *mut *const Edge, *mut usize
    ));
    // SAFETY: locals for the results.
    check(unsafe {
        info(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count)
    })?;
    assert_eq!(status, 1, "the capture is active");
    // SAFETY: the driver points to `count` items, which are valid until this thread's next query.
    let both = |index| unsafe { (*nodes.add(index), *edges.add(index)) };
    Ok((graph, (0..count).map(both).collect()))
}

/// Returns the number of terminals by the older function, which has no place for edge data.
pub fn terminals_count(d: &Driver, stream: u64) -> Outcome<usize> {
    let (mut status, mut id, mut graph, mut count) = (0, 0, 0, 0);
    let mut nodes = std::ptr::null();
    // SAFETY: locals for the results.
    check(unsafe {
        (d.functions.cuStreamGetCaptureInfo)(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut nodes,
            &mut count,
        )
    })?;
    Ok(count)
}

pub fn update_terminals(d: &Driver, stream: u64, nodes: &[u64], flags: u32) -> Outcome {
    let update = function!(d, "cuStreamUpdateCaptureDependencies"(u64, *const u64, usize, u32));
    // SAFETY: a list of this length.
    check(unsafe { update(stream, nodes.as_ptr(), nodes.len(), flags) })
}

pub fn update_terminals_with(
    d: &Driver,
    stream: u64,
    nodes: &[u64],
    edges: &[Edge],
    flags: u32,
) -> Outcome {
    let update = function!(d, "cuStreamUpdateCaptureDependencies_v2"(
        u64, *const u64, *const Edge, usize, u32
    ));
    // SAFETY: two lists of this length.
    check(unsafe { update(stream, nodes.as_ptr(), edges.as_ptr(), nodes.len(), flags) })
}

/// The edges into a node.
pub fn edges_into(d: &Driver, node: u64) -> Outcome<Vec<(u64, Edge)>> {
    let ask = function!(d, "cuGraphNodeGetDependencies_v2"(
        u64, *mut u64, *mut Edge, *mut usize
    ));
    let (mut nodes, mut edges, mut count) = ([0; 8], [FULL; 8], 8);
    // SAFETY: two lists of this length.
    check(unsafe { ask(node, nodes.as_mut_ptr(), edges.as_mut_ptr(), &mut count) })?;
    Ok(nodes.into_iter().zip(edges).take(count).collect())
}

pub fn edges_into_without_data(d: &Driver, node: u64) -> Outcome<usize> {
    let ask = function!(d, "cuGraphNodeGetDependencies"(u64, *mut u64, *mut usize));
    let (mut nodes, mut count) = ([0; 8], 8);
    // SAFETY: a list of this length.
    check(unsafe { ask(node, nodes.as_mut_ptr(), &mut count) })?;
    Ok(count)
}

pub fn add_empty_node(d: &Driver, graph: u64, before: &[u64]) -> Outcome<u64> {
    let mut node = 0;
    let list = before.as_ptr().cast();
    // SAFETY: a list of this length and a local for the result.
    check(unsafe { (d.functions.cuGraphAddEmptyNode)(&mut node, graph, list, before.len()) })?;
    Ok(node)
}

pub fn add_child(d: &Driver, graph: u64, child: u64) -> Outcome<u64> {
    let add = function!(d, "cuGraphAddChildGraphNode"(*mut u64, u64, *const u64, usize, u64));
    let mut node = 0;
    // SAFETY: no list, and a local for the result.
    check(unsafe { add(&mut node, graph, std::ptr::null(), 0, child) })?;
    Ok(node)
}

/// Adds a conditional node after others, with its body.
pub fn add_conditional(d: &Driver, graph: u64, before: &[u64], holds: bool) -> Outcome<(u64, u64)> {
    let (mut handle, mut node) = (0, 0);
    let create = function!(d, "cuGraphConditionalHandleCreate"(*mut u64, u64, u64, u32, u32));
    // SAFETY: a local for the result.
    check(unsafe { create(&mut handle, graph, d.context(), u32::from(holds), 1) })?;
    // Type, three reserved words, then: handle, kind (if) and number of bodies, bodies, context.
    let mut params = [0_u64; 32];
    (params[0], params[2], params[3]) = (13, handle, 1 << 32);
    let add = function!(d, "cuGraphAddNode_v2"(
        *mut u64, u64, *const u64, *const Edge, usize, *mut u64
    ));
    let (list, count) = (before.as_ptr(), before.len());
    // SAFETY: a list of this length, no edge data, and locals for the results.
    check(unsafe { add(&mut node, graph, list, std::ptr::null(), count, params.as_mut_ptr()) })?;
    // SAFETY: the driver points to its list of one body.
    let body = unsafe { *(params[4] as *const u64) };
    Ok((node, body))
}

/// Captures into a graph that exists.
pub fn begin_capture_to(d: &Driver, stream: u64, graph: u64) -> Outcome {
    let begin = function!(d, "cuStreamBeginCaptureToGraph"(
        u64, u64, *const u64, *const Edge, usize, u32
    ));
    // SAFETY: no lists.
    check(unsafe { begin(stream, graph, std::ptr::null(), std::ptr::null(), 0, super::RELAXED) })
}

pub fn update_executable(d: &Driver, executable: u64, graph: u64) -> Outcome {
    let update = function!(d, "cuGraphExecUpdate_v2"(u64, u64, *mut u64));
    let mut result = [0_u64; 4];
    // SAFETY: room for the result.
    check(unsafe { update(executable, graph, result.as_mut_ptr()) })
}

pub fn clone(d: &Driver, graph: u64) -> Outcome<u64> {
    let mut copy = 0;
    // SAFETY: a local for the result.
    check(unsafe { (d.functions.cuGraphClone)(&mut copy, graph) })?;
    Ok(copy)
}

/// Gives a graph a new object, whose destructor gets `data`.
pub fn retain(
    d: &Driver,
    graph: u64,
    destructor: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> Outcome {
    let mut object = 0;
    // SAFETY: a local for the result; the caller's destructor takes this pointer.
    check(unsafe { (d.functions.cuUserObjectCreate)(&mut object, data, destructor, 1, 1) })?;
    // SAFETY: handles and numbers; 1 moves the reference.
    check(unsafe { (d.functions.cuGraphRetainUserObject)(graph, object, 1, 1) })
}

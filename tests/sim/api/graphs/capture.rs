//! Stream capture.

use crate::abi::{Code, CommandList, EdgeData, Handle, Outcome, RecaptureCallback};
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::graphs::capture::{RELAXED, Target};
use crate::model::graphs::graph::Edge;
use crate::model::graphs::recapture::Recapture;

driver! {
    fn cuStreamBeginCapture, cuStreamBeginCapture_ptsz: (stream: Handle) |call| {
        begin(call, stream, 0, Target::NewGraph)
    }

    fn cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz: (stream: Handle, mode: u32) |call| {
        begin(call, stream, mode, Target::NewGraph)
    }

    fn cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz: (
        stream: Handle, graph: Handle, before: In<Handle>, data: In<EdgeData>, count: usize,
        mode: u32
    ) |call| {
        let edges = read_edges(before, data, count)?;
        begin(call, stream, mode, Target::Graph(graph, edges))
    }

    fn cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz: (
        stream: Handle, mode: u32, graph: Handle, callback: RecaptureCallback, data: u64
    ) |call| {
        let again = Recapture { count: 0, callback, data };
        begin(call, stream, mode, Target::SameGraph(graph, again))
    }

    fn cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz: (
        stream: Handle, params: In<In<CommandList>>
    ) |call| {
        let CommandList { kind, list } = params.get()?.get()?;
        if ![D3D12_LIST, VULKAN_BUFFER].contains(&kind) || list == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let resolved = call.stream(stream)?;
        let context = call.world().streams.get(resolved)?.context;
        if !call.world().contexts.get(context)?.is_graphics {
            return Err(Code::INVALID_CONTEXT);
        }
        begin(call, stream, RELAXED, Target::CommandList)
    }

    fn cuStreamEndCaptureToCig, cuStreamEndCaptureToCig_ptsz: (stream: Handle) |call| {
        let (stream, thread) = (call.stream(stream)?, call.thread);
        call.world().end_graphics_capture(stream, thread)
    }

    fn cuStreamEndCapture, cuStreamEndCapture_ptsz: (stream: Handle, graph: Out<Handle>) |call| {
        let stream = call.stream(stream)?;
        let thread = call.thread;
        graph.put_if_asked(0);
        let ended = call.world().end_capture(stream, thread)?;
        graph.put(ended)
    }

    fn cuStreamIsCapturing, cuStreamIsCapturing_ptsz: (stream: Handle, status: Out<u32>) |call| {
        let stream = call.stream(stream)?;
        not_implicit(call, stream)?;
        let (number, _) = status_of(call, stream);
        status.put(number)
    }

    fn cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz: (
        stream: Handle, status: Out<u32>, id: Out<u64>
    ) |call| {
        info(call, stream, status, id).map(drop)
    }

    fn cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz: (
        stream: Handle, status: Out<u32>, id: Out<u64>, graph: Out<Handle>, before: Out<u64>,
        count: Out<usize>
    ) |call| {
        let Some(found) = info(call, stream, status, id)? else { return Ok(()) };
        put_terminals(found, graph, before, Out::at(0), count)
    }

    fn cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz: (
        stream: Handle, status: Out<u32>, id: Out<u64>, graph: Out<Handle>, before: Out<u64>,
        data: Out<u64>, count: Out<usize>
    ) |call| {
        let Some(found) = info(call, stream, status, id)? else { return Ok(()) };
        put_terminals(found, graph, before, data, count)
    }

    fn cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz: (
        stream: Handle, before: In<Handle>, count: usize, flags: u32
    ) |call| {
        update(call, stream, read_edges(before, In::at(0), count)?, flags)
    }

    fn cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz: (
        stream: Handle, before: In<Handle>, data: In<EdgeData>, count: usize, flags: u32
    ) |call| {
        update(call, stream, read_edges(before, data, count)?, flags)
    }

    fn cuThreadExchangeStreamCaptureMode: (mode: Out<u32>) |call| {
        let wish = mode.get()?;
        if wish > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        let thread = call.thread;
        let own = &mut call.world().threads.entry(thread).or_default().capture_mode;
        let before = std::mem::replace(own, wish);
        mode.put(before)
    }
}

const D3D12_LIST: u32 = 1;
const VULKAN_BUFFER: u32 = 2;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;
const SET_DEPENDENCIES: u32 = 1;

thread_local! {
    /// Nodes and edges to which the last query of this thread returned pointers.
    static ANSWER: std::cell::RefCell<(Vec<Handle>, Vec<EdgeData>)> =
        const { std::cell::RefCell::new((Vec::new(), Vec::new())) };
}

pub fn read_edges(before: In<Handle>, data: In<EdgeData>, count: usize) -> Outcome<Vec<Edge>> {
    let nodes = before.list(count)?;
    let data = if data.is_null() { Vec::new() } else { data.list(count)? };
    let edge = |(index, node): (usize, Handle)| Edge::new(node, data.get(index));
    Ok(nodes.into_iter().enumerate().map(edge).collect())
}

fn begin(call: &mut Call, stream: Handle, mode: u32, target: Target) -> Outcome {
    let stream = call.stream(stream)?;
    let thread = call.thread;
    call.world().begin_capture(stream, mode, thread, target)
}

/// Rejects the query if the legacy stream waits for a capturing stream. Unlike work, the query does
/// not invalidate the capture.
fn not_implicit(call: &mut Call, stream: Handle) -> Outcome {
    let met = call.world().legacy_meets_capture(stream);
    if met.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_IMPLICIT) }
}

fn status_of(call: &mut Call, stream: Handle) -> (u32, u64) {
    let world = call.world();
    match world.capture_of(stream) {
        None => (0, 0),
        Some(id) if world.captures.active[&id].valid => (ACTIVE, id),
        Some(id) => (INVALIDATED, id),
    }
}

/// Graph and terminals of an active capture.
fn info(
    call: &mut Call,
    stream: Handle,
    status: Out<u32>,
    id: Out<u64>,
) -> Outcome<Option<(Handle, Vec<Edge>)>> {
    let stream = call.stream(stream)?;
    not_implicit(call, stream)?;
    let (number, capture) = status_of(call, stream);
    status.put(number)?;
    if number != ACTIVE {
        return Ok(None);
    }
    id.put_if_asked(capture);
    let world = call.world();
    let member = world.streams.get(stream)?.capture.as_ref().ok_or(Code::ILLEGAL_STATE)?;
    Ok(Some((world.captures.active[&capture].graph, member.terminals.clone())))
}

fn put_terminals(
    found: (Handle, Vec<Edge>),
    graph: Out<Handle>,
    before: Out<u64>,
    data: Out<u64>,
    count: Out<usize>,
) -> Outcome {
    let (of, terminals) = found;
    // A caller that does not request edge data must not miss it.
    if data.is_null() && terminals.iter().any(|edge| edge.programmatic) {
        return Err(Code::LOSSY_QUERY);
    }
    graph.put_if_asked(of);
    count.put_if_asked(terminals.len());
    ANSWER.with_borrow_mut(|(nodes, edges)| {
        *nodes = terminals.iter().map(|edge| edge.node).collect();
        *edges = terminals.iter().map(Edge::data).collect();
        before.put_if_asked(nodes.as_ptr() as u64);
        data.put_if_asked(edges.as_ptr() as u64);
    });
    Ok(())
}

fn update(call: &mut Call, stream: Handle, edges: Vec<Edge>, flags: u32) -> Outcome {
    let stream = call.stream(stream)?;
    if flags > SET_DEPENDENCIES {
        return Err(Code::INVALID_VALUE);
    }
    call.world().update_terminals(stream, edges, flags == SET_DEPENDENCIES)
}

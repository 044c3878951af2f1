//! The begin and the end of captures, and calls that may pull a stream into a capture
//! (docs/ordering.md 5).

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::breakdown::Component;

use crate::contexts::stream_identity;
use crate::driver::sys::{
    CAPTURE_MODE_GLOBAL, CuResult, GraphHandle, Location, NODE_KERNEL, NODE_MEM_ALLOC,
    NODE_MEM_FREE, StreamHandle,
};
use crate::functions::Function;
use crate::graphs::{graph_memory, open_captures, participants, pool_life};
use crate::hooks::kernel_node::HEAD_WORDS;
use crate::hooks::{
    Real, beside, common, guarded, guarded_with, host_memory, kernel_node, stream_among, stream_of,
    taking,
};
use crate::lock::lock;
use crate::ordering::{before_submission, captures, deferred_wait};
use crate::process::bypass;
use crate::state::thread::Thread;
use crate::{memory_hooks, record};

/// `cuStreamBeginCapture(stream)`.
pub(crate) fn begin(
    function: &'static Function,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    begin_in_mode(function, stream, CAPTURE_MODE_GLOBAL, real)
}

/// `cuStreamBeginCapture_v2(stream, mode)`, `cuStreamBeginCaptureToGraph(stream, .., mode)`,
/// `cuStreamBeginRecaptureToGraph(stream, mode, ..)`.
pub(crate) fn begin_in_mode(
    function: &'static Function,
    stream: StreamHandle,
    mode: u32,
    real: impl Real,
) -> CuResult {
    begins(function, stream, Some(mode), real)
}

/// `cuStreamBeginCaptureToCig(stream, ..)`: does not capture into a graph.
pub(crate) fn begin_without_graph(
    function: &'static Function,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    begins(function, stream, None, real)
}

/// Excludes barriers of the stream's context: a barrier recorded meanwhile would invalidate the
/// capture.
fn begins(
    function: &'static Function,
    stream: StreamHandle,
    mode: Option<u32>,
    real: impl Real,
) -> CuResult {
    let stream = stream_of(function, stream);
    guarded(
        function,
        || {
            let Some(context) = stream_identity::context_of(stream) else { return real() };
            pool_life::reap();
            let _exclusive = match rule_holds(Rule::CaptureFlushesFirst) {
                true => deferred_wait::lock_barriers_flushed(context),
                false => lock(&context.barrier_lock),
            };
            captures::begin(stream, context, mode, real)
        },
        real,
    )
}

/// `cuStreamEndCapture*(stream, ...)`. A call that fails may end the capture all the same.
pub(crate) fn end(function: &'static Function, stream: StreamHandle, real: impl Real) -> CuResult {
    let stream = stream_of(function, stream);
    let end = || {
        let code = captures::end(stream, real);
        if code.is_err() {
            pool_life::graph_ended();
        }
        code
    };
    guarded(function, end, real)
}

/// `cuStreamWaitEvent(stream, event, flags)`. During a capture the event may be a captured one,
/// which pulls this stream, of any context, into the capture.
pub(crate) fn wait_event(
    function: &'static Function,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    // The export would keep the arguments in memory if it asked.
    if !bypass::is_caching() {
        return real();
    }
    if !rule_holds(Rule::EventWaitsCount) {
        return real();
    }
    match captures::maybe() {
        true => wait_event_beside_captures(function, stream, real),
        false => common::submit(function, false, real),
    }
}

#[cold]
fn wait_event_beside_captures(
    function: &'static Function,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    let submit = || common::submit(function, false, real);
    let stream = stream_of(function, stream);
    guarded(
        function,
        || {
            let Some(context) = stream_identity::context_of(stream) else { return submit() };
            // Without deferred waits: else the submission would flush them, and needs the barrier
            // lock for it.
            let exclusive = deferred_wait::lock_barriers_flushed(context);
            let joining = open_captures::may_join(stream);
            let code = submit();
            drop(exclusive);
            if let Some(member) = joining.filter(|_| code.is_ok()) {
                open_captures::waited(member);
            }
            code
        },
        submit,
    )
}

/// `cuStreamDestroy(stream)`: ends a capture that began on the stream.
pub(crate) fn stream_destroy(
    function: &'static Function,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    stream_identity::may_end();
    before_submission::stream_ends(stream);
    if !bypass::is_caching() {
        return real();
    }
    if !captures::maybe() {
        return taking::around_end(function, Component::Objects, real);
    }
    let stream = stream_of(function, stream);
    guarded(function, || captures::destroy(stream, real), real)
}

/// `cuGraphAdd*Node(node, graph, ..)`, `cuGraphAddDependencies(graph, ..)` and similar calls: they
/// change a graph, which may still be the graph of a running capture.
pub(crate) fn edit_graph(
    function: &'static Function,
    graph: GraphHandle,
    real: impl Real,
) -> CuResult {
    edited(function, Some(graph));
    common::pass(function, real)
}

/// `cuGraphAddMemAllocNode(node, graph, .., CUDA_MEM_ALLOC_NODE_PARAMS *)`: the driver writes the
/// address into the parameters.
pub(crate) fn add_memory_node(
    function: &'static Function,
    graph: GraphHandle,
    params: *const usize,
    real: impl Real,
) -> CuResult {
    const POOL_WORDS: [usize; 2] = [0, 1];
    const BYTES_WORD: usize = 13;
    const ADDRESS_WORD: usize = 14;
    let add = || edit_graph(function, graph, real);
    let mut observed = None;
    if !bypass::is_fast_path() && !params.is_null() {
        // SAFETY: the program's struct, which the driver reads as well; it writes the address where
        // that is read.
        unsafe {
            let device = Location::from(params.add(POOL_WORDS[1]).read() as u64).device();
            let (bytes, place) = (params.add(BYTES_WORD).read(), params.add(ADDRESS_WORD));
            observed = memory_hooks::around_node(|| device, place.cast(), bytes as u64, add);
        }
    }
    let code = observed.unwrap_or_else(add);
    if code.is_ok() && !params.is_null() {
        // SAFETY: the program's struct, into which the driver has just written the address.
        let address = unsafe { params.add(ADDRESS_WORD).read() } as u64;
        // SAFETY: as above.
        host_memory::made_by_node(POOL_WORDS.map(|at| unsafe { params.add(at).read() } as u64));
        beside(function, || graph_memory::added(graph, address, record::capture::of_allocation()));
    }
    code
}

/// `cuGraphAddMemFreeNode(node, graph, .., address)`.
pub(crate) fn add_free_node(
    function: &'static Function,
    graph: GraphHandle,
    address: u64,
    real: impl Real,
) -> CuResult {
    let add = || edit_graph(function, graph, real);
    let mut observed = None;
    if !bypass::is_fast_path() {
        observed = memory_hooks::around_free(address, add);
    }
    observed.unwrap_or_else(add)
}

/// `cuGraphAddNode(node, graph, .., CUgraphNodeParams *)`: adds a node of any kind.
pub(crate) fn add_node(
    function: &'static Function,
    graph: GraphHandle,
    params: *const usize,
    real: impl Real,
) -> CuResult {
    // SAFETY: null, or the program's struct, which begins with a number of this size.
    let kind = unsafe { params.cast::<u32>().as_ref() };
    match kind {
        Some(&NODE_KERNEL) => {
            // SAFETY: as above; the struct is longer than its head.
            kernel_node::add(function, graph, unsafe { params.add(HEAD_WORDS) }, real)
        }
        Some(&NODE_MEM_ALLOC) => {
            // SAFETY: as above.
            let params = unsafe { params.add(HEAD_WORDS) };
            add_memory_node(function, graph, params, real)
        }
        Some(&NODE_MEM_FREE) => {
            // SAFETY: as above.
            let address = unsafe { params.add(HEAD_WORDS).read() } as u64;
            add_free_node(function, graph, address, real)
        }
        _ => edit_graph(function, graph, real),
    }
}

/// `cuGraphDestroyNode(node)`: the call does not name the graph, which may be any.
pub(crate) fn edit(function: &'static Function, real: impl Real) -> CuResult {
    edited(function, None);
    common::pass(function, real)
}

/// `cuStreamUpdateCaptureDependencies(stream, ..)`.
pub(crate) fn update_dependencies(
    function: &'static Function,
    stream: StreamHandle,
    real: impl Real,
) -> CuResult {
    let code = edit(function, real);
    if captures::maybe() {
        let stream = stream_of(function, stream);
        beside(function, || open_captures::terminals_set(stream));
    }
    code
}

fn edited(function: &'static Function, graph: Option<GraphHandle>) {
    if captures::maybe() {
        beside(function, || open_captures::edited(graph));
    }
}

/// Notes that this call is about to submit work while some stream captures. The work may become
/// part of the capture.
///
/// # Safety
///
/// `words` must be the program's arguments of this function.
#[cold]
pub(crate) unsafe fn submits(function: &'static Function, words: &[usize]) {
    if !bypass::is_caching() {
        return;
    }
    // SAFETY: the caller's promise.
    let stream = unsafe { stream_among(function, words) };
    let body = |thread: &Thread| {
        captures::note_submission(thread, stream);
        if let Some(stream) = stream {
            // SAFETY: the caller's promise.
            unsafe { participants::submits(thread, function, stream, words) };
        }
        Ok(())
    };
    let _ = guarded_with(function, body, || Ok(()));
}

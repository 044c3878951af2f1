//! Begin and end of captures, and what may pull a stream into one (docs/ordering.md 5).

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::streams;
use crate::driver::sys::{CAPTURE_MODE_GLOBAL, CAPTURE_MODE_RELAXED, CuResult};
use crate::functions::{Function, StreamAt};
use crate::graphs::{open_captures, participants, pool_life};
use crate::hooks::{beside, common, guarded, guarded_with, stream_of};
use crate::lock::lock;
use crate::ordering::captures;
use crate::process::bypass;
use crate::process::thread::Thread;

/// `cuStreamBeginCapture*(stream, ...)`. Excludes barriers of the stream's context: one under way would
/// kill the capture.
pub(crate) fn begin(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_caching() {
        return real();
    }
    let stream = stream_of(function, words[0]);
    guarded(
        function,
        || {
            let Some(context) = streams::context_of(stream) else { return real() };
            pool_life::reap();
            let _exclusive = lock(&context.gate);
            captures::begin(stream, context, mode_of(function, words), real)
        },
        real,
    )
}

/// `cuStreamEndCapture*(stream, ...)`. May fail and end the capture nevertheless.
pub(crate) fn end(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_caching() {
        return real();
    }
    let stream = stream_of(function, words[0]);
    let end = || {
        let code = captures::end(stream, real);
        if code.is_err() {
            pool_life::graph_ended();
        }
        code
    };
    guarded(function, end, real)
}

/// `cuStreamWaitEvent(stream, event, flags)`. During a capture the event may be a captured one and pull
/// this stream, of any context, into the capture.
pub(crate) fn wait_event(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_caching() {
        return real();
    }
    if !rule_holds(Rule::EventWaitsCount) {
        return real();
    }
    let submit = || common::submit(function, false, real);
    if !captures::maybe() {
        return submit();
    }
    let stream = stream_of(function, words[0]);
    guarded(
        function,
        || {
            let Some(context) = streams::context_of(stream) else { return submit() };
            let exclusive = lock(&context.gate);
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

/// `cuStreamDestroy(stream)`: ends a capture that the stream began.
pub(crate) fn stream_destroy(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_caching() || !captures::maybe() {
        return real();
    }
    let stream = stream_of(function, words[0]);
    guarded(function, || captures::destroy(stream, real), real)
}

/// `cuGraphAdd*Node(node, graph, ...)`, `cuGraphAddDependencies(graph, ...)` and the like: change a
/// graph, which may still be the one of a capture.
pub(crate) fn edit(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if bypass::is_caching() && captures::maybe() {
        let graph = match function.base {
            "cuGraphDestroyNode" | "cuStreamUpdateCaptureDependencies" => None,
            "cuGraphAddDependencies" | "cuGraphRemoveDependencies" => Some(words[0]),
            _ => Some(words[1]),
        };
        beside(function, || open_captures::edited(graph));
    }
    let code = common::pass(function, words, real);
    if bypass::is_caching()
        && captures::maybe()
        && function.base == "cuStreamUpdateCaptureDependencies"
    {
        let stream = stream_of(function, words[0]);
        beside(function, || open_captures::terminals_set(stream));
    }
    code
}

/// A stream captures, and this call is about to submit work, perhaps into the capture.
///
/// # Safety
///
/// `words` are the program's arguments of this function.
#[cold]
pub(crate) unsafe fn submits(function: &'static Function, words: &[usize]) {
    if !bypass::is_caching() {
        return;
    }
    let stream = match function.stream {
        StreamAt::Nowhere => None,
        StreamAt::Argument(index) => Some(words[index as usize]),
        StreamAt::Inside { argument, offset } => match words[argument as usize] {
            0 => None,
            // SAFETY: the driver reads its stream there.
            place => Some(unsafe {
                (place as *const u8).add(offset as usize).cast::<usize>().read_unaligned()
            }),
        },
    };
    let stream = stream.map(|stream| stream_of(function, stream));
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

/// The mode of a Begin. None: it does not capture into a graph.
fn mode_of(function: &Function, words: &[usize]) -> Option<u32> {
    match function.base {
        "cuStreamBeginCaptureToCig" => None,
        "cuStreamBeginCaptureToGraph" => Some(words[5] as u32),
        // An earlier graph: calls of other threads are assumed not to add to it.
        "cuStreamBeginRecaptureToGraph" => Some(CAPTURE_MODE_RELAXED),
        _ if words.len() > 1 => Some(words[1] as u32),
        _ => Some(CAPTURE_MODE_GLOBAL),
    }
}

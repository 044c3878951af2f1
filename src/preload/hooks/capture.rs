//! Begin and end of captures, and what may pull a stream into one (DESIGN 3.4).

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::CuResult;
use crate::functions::Function;
use crate::hooks::{beside, common, guarded, stream_of};
use crate::runtime::{bypass, captures, lock};

/// `cuStreamBeginCapture*(stream, ...)`. Exclusive against barriers of the stream's context: one
/// that is under way would kill the capture.
pub fn begin(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    let stream = stream_of(function, words[0]);
    guarded(
        function,
        || {
            let Some(context) = captures::context_of(stream) else { return real() };
            let _exclusive = lock(&context.gate);
            captures::begin(stream, context, real)
        },
        real,
    )
}

/// `cuStreamEndCapture*(stream, ...)`. It may fail and end the capture nevertheless.
pub fn end(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_on() {
        return real();
    }
    let stream = stream_of(function, words[0]);
    guarded(function, || captures::end(stream, real), real)
}

/// `cuStreamWaitEvent(stream, event, flags)`. While something captures, the event may be a
/// captured one and pull this stream, of whatever context, into the capture.
pub fn wait_event(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if !bypass::is_on() {
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
            let Some(context) = captures::context_of(stream) else { return submit() };
            let _exclusive = lock(&context.gate);
            submit()
        },
        submit,
    )
}

/// `cuStreamDestroy(stream)`: a capture that it began goes with it.
pub fn stream_destroy(
    function: &'static Function,
    words: &[usize],
    real: impl Fn() -> CuResult + Copy,
) -> CuResult {
    if bypass::is_on() && captures::maybe() {
        let stream = stream_of(function, words[0]);
        beside(function, || captures::stream_destroyed(stream));
    }
    real()
}

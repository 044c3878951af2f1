//! Handling common to all hooked calls, chosen by their class and columns: submission counters
//! around a submission, a retry after an out-of-memory error, and before a teardown the wait for
//! earlier frees.

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::release;
use crate::cache::{fill, retry, sticky_error};
use crate::config;
use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{CuCode, CuError, CuResult, StreamHandle, result};
use crate::functions::{Class, Function};
use crate::graphs::participants;
use crate::hooks::{Real, beside};
use crate::memory_hooks;
use crate::ordering::{captures, pending, real_frees, submissions};
use crate::peer_reclaim::{Needed, ReclaimRequest};
use crate::process::{bounds, bypass};
use crate::state::inflight_releases;
use crate::state::thread;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits::Wait;

/// The hook of functions that need no special handling.
#[inline(always)]
pub(crate) fn pass(function: &'static Function, real: impl Real) -> CuResult {
    if function.teardown {
        pending::wait_all(Wait::Teardown);
    }
    if function.submits() {
        submit(function, function.host_memory, real)
    } else if function.teardown {
        real_frees::announced_end(|| retried(function, real))
    } else {
        retried(function, real)
    }
}

/// Runs a call that submits work. `host_visible`: the host can see its effect without
/// synchronizing.
#[inline(always)]
pub(crate) fn submit(function: &'static Function, host_visible: bool, real: impl Real) -> CuResult {
    submit_to(function, host_visible, MayBeCaptured::Perhaps, real)
}

/// Runs a submission like `submit`, for a caller that knows whether it may be captured.
#[inline(always)]
pub(crate) fn submit_to(
    function: &'static Function,
    host_visible: bool,
    captured: MayBeCaptured,
    real: impl Real,
) -> CuResult {
    submissions::counted(host_visible, || match real() {
        Ok(()) => Ok(()),
        // A copy, so that the arguments of a call that succeeds need no place in memory.
        Err(error) => failed(function, captured, None, error, &mut move || real()),
    })
}

/// The kind of memory that an observed call allocates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ObservedKind {
    Memory,
    /// A memory node, which the driver creates on a stream that captures.
    Node,
}

/// Serves an allocation of the program completely if memory hooks observe it. `words` are the
/// call's arguments; the first is the address of the result. Returns `None` if no hook observes the
/// call, or if one already has; then the caller continues.
///
/// An observed call is repeated through its entry point. So the code that serves it exists once,
/// and the compiler inlines it as if there were no memory hooks.
#[cold]
pub(crate) fn observed_malloc(
    function: &'static Function,
    words: &[usize],
    bytes: u64,
    makes: ObservedKind,
) -> Option<CuResult> {
    let pointer = words[0] as *const u64;
    if pointer.is_null() || bytes == 0 {
        return None;
    }
    let device = || current_device(function);
    let again = || again(function, words);
    // SAFETY: the call writes there, as the driver's would.
    unsafe {
        match makes {
            ObservedKind::Memory => memory_hooks::around_malloc(device, pointer, bytes, again),
            ObservedKind::Node => memory_hooks::around_node(device, pointer, bytes, again),
        }
    }
}

fn current_device(function: &'static Function) -> Option<i32> {
    let mut device = None;
    beside(function, || device = lookup::current().ok().map(|context| context.device));
    device
}

/// Serves a free completely if memory hooks observe it, like `observed_malloc`.
#[cold]
pub(crate) fn observed_free(function: &'static Function, words: &[usize]) -> Option<CuResult> {
    memory_hooks::around_free(words[0] as u64, || again(function, words))
}

fn again(function: &'static Function, words: &[usize]) -> CuResult {
    let export = function.body().expect("only exported functions get here");
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    // SAFETY: our export of this function, with the words that it was called with. It takes at most
    // six, and ignores those it does not take.
    result(unsafe {
        let export: unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> CuCode =
            core::mem::transmute(export);
        export(word(0), word(1), word(2), word(3), word(4), word(5))
    })
}

/// Runs the real call, and repeats it if it ran out of memory that the library can release.
#[inline(always)]
pub(crate) fn retried(function: &'static Function, real: impl Real) -> CuResult {
    retried_mut(function, &mut || real())
}

/// Runs the real call like `retried`. Its memory is on `device`, whichever device is current.
pub(crate) fn retried_on(function: &'static Function, device: i32, real: impl Real) -> CuResult {
    match real() {
        Ok(()) => Ok(()),
        Err(error) => failed(function, MayBeCaptured::No, Some(device), error, &mut || real()),
    }
}

/// Whether a failed call may have become part of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayBeCaptured {
    /// The call takes no stream, or one that does not capture.
    No,
    /// The call may be captured if any stream captures.
    Perhaps,
}

/// Runs the real call like `retried`, for a closure that keeps part of its result.
#[inline(always)]
pub(crate) fn retried_mut(
    function: &'static Function,
    real: &mut impl FnMut() -> CuResult,
) -> CuResult {
    match real() {
        Ok(()) => Ok(()),
        Err(error) => failed(function, MayBeCaptured::No, None, error, real),
    }
}

/// Returns the result of a call that has failed once. `device` is the device of its memory, if not
/// the current one.
#[cold]
fn failed(
    function: &'static Function,
    captured: MayBeCaptured,
    device: Option<i32>,
    error: CuError,
    real: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    let code = Err(error);
    if config::only_looks() {
        return code;
    }
    note_lost(function, code);
    let may_retry = function.oom_retry || !rule_holds(Rule::RetryAsListed);
    if code == Err(CuError::OUT_OF_MEMORY) && may_retry {
        return final_result(function, captured, device, real);
    }
    code
}

/// Repeats the call as long as memory arrives for it, and at least once: memory that arrived
/// between the driver's refusal and the first check here cannot be distinguished from earlier
/// memory.
fn final_result(
    function: &'static Function,
    captured: MayBeCaptured,
    device: Option<i32>,
    real: &mut dyn FnMut() -> CuResult,
) -> CuResult {
    let device = device.or_else(|| api::ctx_get_device().ok());
    let (mut code, mut seen) = (Err(CuError::OUT_OF_MEMORY), inflight_releases::arrivals());
    let may_not_repeat = || {
        let captures = || captures::any() && !thread::with(captures::is_beside);
        captured == MayBeCaptured::Perhaps
            && captures()
            && rule_holds(Rule::RetryNotInCapture)
            && !thread::with(participants::is_as_before)
    };
    for tries in bounds::ROOM.tries() {
        if may_not_repeat() {
            break;
        }
        if !in_guard(function, || make_room(device, waiter(function), &mut seen)) && tries > 0 {
            break;
        }
        counters::count(Count::Retries);
        code = real();
        if code != Err(CuError::OUT_OF_MEMORY) {
            break;
        }
    }
    // Functions of the other classes report how much they ask for (`driver_memory/serving`), and so
    // does the cache.
    let mut reclaim =
        (!matches!(function.class, Class::Record | Class::Own)).then(ReclaimRequest::default);
    while let Some(reclaim) = reclaim.as_mut().filter(|_| code == Err(CuError::OUT_OF_MEMORY)) {
        let needed = || Needed {
            device: device.unwrap_or(0),
            bytes: None,
            context: lookup::current().ok(),
            may_wait: true,
        };
        if may_not_repeat() || !in_guard(function, || reclaim.try_reclaim(needed())) {
            break;
        }
        code = real();
    }
    code
}

/// Returns how the plain driver treats the call while another thread's free holds the context.
fn waiter(function: &Function) -> Waiter {
    if function.goes_on { Waiter::GoesOn } else { Waiter::StandsStill }
}

/// Runs `body` in its own guard if no hook of this thread is active.
#[cold]
pub(crate) fn in_guard(function: &'static Function, body: impl FnOnce() -> bool) -> bool {
    if thread::with(|thread| thread.inside.get()) {
        return body();
    }
    let mut answer = false;
    beside(function, || answer = body());
    answer
}

/// Notes a failed call. Whether its context is lost is checked only when it matters.
#[cold]
pub(crate) fn note_lost(function: &'static Function, code: CuResult) {
    let is_lost = code.is_err_and(CuError::means_lost) && !config::only_looks();
    if is_lost && rule_holds(Rule::StickyErrorRefuses) {
        beside(function, sticky_error::note);
    }
}

/// Returns the error that the plain driver would return for an allocation in the current context,
/// if that context is lost.
#[cold]
pub(crate) fn lost(function: &'static Function) -> Option<CuError> {
    if config::only_looks() {
        return None;
    }
    let mut error = None;
    beside(function, || error = lookup::current().ok().and_then(sticky_error::of));
    error
}

/// Releases the free memory in every context of the device, or of every device if `device` is
/// `None`. Also waits for memory that other threads are releasing. `seen` is the number of arrivals
/// read before the driver was asked. Returns `false` if no more memory arrived.
#[cold]
pub(crate) fn make_room(device: Option<i32>, waiter: Waiter, seen: &mut u64) -> bool {
    if config::only_looks() {
        return false;
    }
    // Frees of the current context: on the plain driver this call would wait for them.
    if let Ok(context) = lookup::current() {
        retry::wait_for_frees(context, waiter);
    }
    let code = api::relaxed(|| release::everything_free(device, waiter));
    let awaited = |device| inflight_releases::awaited_by(device, waiter);
    let arrivals = device.map_or_else(inflight_releases::arrivals, awaited);
    let more = core::mem::replace(seen, arrivals) != arrivals;
    code.is_ok() && more
}

/// Fills memory that the driver served directly, as the option `fill` requires.
#[inline]
pub(crate) fn fill(address: u64, bytes: u64, stream: Option<StreamHandle>) {
    if config::writes_blocks()
        && let Ok(context) = lookup::current()
    {
        fill::prepare_driver_memory(context, address, bytes, stream);
    }
}

//! Handling common to all hooked calls, chosen by their class and columns: submission counters
//! around a submission, a retry after an out-of-memory error, and before a teardown the wait for
//! earlier frees.

use core::ffi::c_void;
use core::marker::PhantomData;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::{fill, sticky_error};
use crate::config;
use crate::contexts::lookup;
use crate::driver::sys::{CuCode, CuError, CuResult, StreamHandle, result};
use crate::functions::Function;
use crate::hooks::{Real, beside};
use crate::memory_hooks;
use crate::ordering::{pending, real_frees, submissions};
use crate::serving::refused_call::{MayBeCaptured, RefusedCall};
use crate::state::thread;
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
        Err(error) => failed(function, captured, None, error, Again::of(&mut move || real())),
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
        Err(error) => {
            failed(function, MayBeCaptured::No, Some(device), error, Again::of(&mut || real()))
        }
    }
}

/// Runs the real call like `retried`, for a closure that keeps part of its result.
#[inline(always)]
pub(crate) fn retried_mut(
    function: &'static Function,
    real: &mut impl FnMut() -> CuResult,
) -> CuResult {
    match real() {
        Ok(()) => Ok(()),
        Err(error) => failed(function, MayBeCaptured::No, None, error, Again::of(real)),
    }
}

/// Returns the result of a submission that has failed once.
#[cfg(target_arch = "x86_64")]
pub(crate) fn failed_once(
    function: &'static Function,
    captured: MayBeCaptured,
    error: CuError,
    real: impl Real,
) -> CuResult {
    failed(function, captured, None, error, Again::of(&mut || real()))
}

/// Notes that a call has failed.
#[inline(always)]
pub(crate) fn note_failed(function: &'static Function, error: CuError) {
    if error.means_lost() {
        note_lost(function, Err(error));
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
    mut real: Again,
) -> CuResult {
    let code = Err(error);
    note_failed(function, error);
    if config::only_looks() {
        return code;
    }
    let may_retry = function.oom_retry || !rule_holds(Rule::RetryAsListed);
    if code != Err(CuError::OUT_OF_MEMORY) || !may_retry {
        return code;
    }
    let (mut code, mut refused) = (code, RefusedCall::new(function, captured, device));
    while code == Err(CuError::OUT_OF_MEMORY) && in_guard(function, || refused.should_be_repeated())
    {
        code = real.call();
    }
    code
}

/// A `&mut dyn FnMut() -> CuResult` without a table for each closure, of which there are several
/// for each function: see Note [Relocations] in `functions`.
struct Again<'a> {
    closure: *mut c_void,
    call: unsafe fn(*mut c_void) -> CuResult,
    lives: PhantomData<&'a mut ()>,
}

impl<'a> Again<'a> {
    fn of<F: FnMut() -> CuResult>(closure: &'a mut F) -> Again<'a> {
        /// # Safety
        ///
        /// `closure` is an `F` that nothing else refers to.
        unsafe fn call<F: FnMut() -> CuResult>(closure: *mut c_void) -> CuResult {
            // SAFETY: the caller's promise.
            unsafe { (*closure.cast::<F>())() }
        }
        Again { closure: (&raw mut *closure).cast(), call: call::<F>, lives: PhantomData }
    }

    fn call(&mut self) -> CuResult {
        // SAFETY: `call` is that of the closure's type, and this value has the only reference.
        unsafe { (self.call)(self.closure) }
    }
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

/// Fills memory that the driver served directly, as the option `fill` requires.
#[inline]
pub(crate) fn fill(address: u64, bytes: u64, stream: Option<StreamHandle>) {
    if config::writes_blocks()
        && let Ok(context) = lookup::current()
    {
        fill::prepare_driver_memory(context, address, bytes, stream);
    }
}

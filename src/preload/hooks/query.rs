//! Queries whether work has completed, made after a free that did not wait. On the plain driver,
//! the work before the free has completed.

use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::lookup;
use crate::driver::sys::{ContextHandle, CuError, CuResult};
use crate::functions::Function;
use crate::graphs::destruction_fence;
use crate::hooks::{Real, beside, common, guarded_with};
use crate::ordering::{barrier, pending};
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts::Context;
use crate::state::thread::Thread;
use crate::statistics::waits::Wait;

/// Waits, after a query that returned NOT_READY, for frees that have returned, and asks again. See
/// Note [Which frees to wait for] in `ordering/pending.rs` (hazards 3, 29 and 40).
#[inline]
pub(crate) fn ask_again(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if code.is_ok() {
        destruction_fence::work_is_over();
        return code;
    }
    if !bypass::is_caching() {
        return code;
    }
    if code != Err(CuError::NOT_READY) {
        common::note_lost(function, code);
        return code;
    }
    if !rule_holds(Rule::QueryAsksAgain) {
        return code;
    }
    let again = |thread: &Thread| {
        let wait_for_left = || pending::wait_for_left(Wait::Query);
        // Each wait is made only if the previous one did not suffice.
        let waits: [&dyn Fn() -> bool; 3] =
            [&|| pending::wait_own(thread), &wait_for_left, &pending::wait_for_others];
        let not_ready = Err(CuError::NOT_READY);
        waits
            .iter()
            .fold(code, |code, wait| if code == not_ready && wait() { real() } else { code })
    };
    guarded_with(function, again, || code)
}

/// `cuStreamSynchronize(stream)`, `cuEventSynchronize(event)`: the calls that usually report a
/// fault to the program.
#[inline]
pub(crate) fn wait(function: &'static Function, real: impl Real) -> CuResult {
    let code = real();
    if code.is_ok() {
        destruction_fence::work_is_over();
    } else if bypass::is_caching() {
        common::note_lost(function, code);
    }
    code
}

/// `cuCtxSynchronize()`.
pub(crate) fn synchronize(function: &'static Function, real: impl Real) -> CuResult {
    synchronize_context(function, 0, real)
}

/// `cuCtxSynchronize_v2(context)`; 0 is the current context. The program itself waits for
/// everything, so the frees before the call need no barrier. This does not hold once green contexts
/// exist: with one of them current, the wait covers only its own work (hazard 44).
pub(crate) fn synchronize_context(
    function: &'static Function,
    handle: ContextHandle,
    real: impl Real,
) -> CuResult {
    let mut context: Option<&'static Context> = None;
    let find = || {
        let found = if handle == 0 { lookup::current() } else { lookup::of_handle(handle) };
        context = found.ok();
    };
    beside(function, find);
    let is_partial = barrier::context_waits_are_partial();
    let Some(context) = context.filter(|_| !is_partial) else {
        return wait(function, real);
    };
    let seen = LEDGER.before_barrier(&context.covers);
    let code = real();
    match code {
        Ok(()) => context.covers.waited(seen),
        _ => common::note_lost(function, code),
    }
    code
}
